# SPDX-License-Identifier: Apache-2.0
"""The same random inputs through g++ and through the RTL, and every output compared."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from openhls.backend import simulate
from openhls.backend.design import Design
from openhls.backend.simulate import HARNESS, Outcome, ToolError, build_simulation, compiler, run_cases
from openhls.errors import OpenHlsError
from openhls.ir import Direction

DEFAULT_CHOICE = ((0, 24, 1),)


@dataclass(frozen=True)
class Cosimulation:
    """Both runs of the same cases: with and without stalls."""

    seed: int
    stalled: Outcome
    free: Outcome

    @property
    def problem(self) -> str:
        return self.stalled.problem or self.free.problem


Choices = dict[str, tuple[tuple[int, int, int], ...]]


def parse_choice(text: str) -> tuple[str, tuple[tuple[int, int, int], ...]]:
    """`name=1,2,8:64:8`: values and ranges (first:last or first:last:step) of a scalar argument."""
    name, _, values = text.partition("=")
    items = []
    for item in values.split(","):
        try:
            numbers = [int(part, 0) for part in item.split(":")]
        except ValueError:
            numbers = []
        if not 1 <= len(numbers) <= 3 or not name:
            raise OpenHlsError(f"--set {text}: write name=value,first:last,first:last:step")
        first = numbers[0]
        last = numbers[1] if len(numbers) > 1 else first
        items.append((first, last, numbers[2] if len(numbers) > 2 else 1))
        if items[-1][2] < 1 or last < first:
            raise OpenHlsError(f"--set {text}: {item} is empty")
    return name, tuple(items)


def ap_headers() -> Path:
    """Folder of the vendor's ap_int headers, from the Python package hls4ml, found without importing it."""
    for folder in sys.path:
        found = Path(folder) / "hls4ml/templates/vivado/ap_types"
        if (found / "ap_int.h").exists():
            return found
    raise ToolError("the vendor's ap_int headers are missing: pip install --no-deps hls4ml==1.3.0")


def reference_text(design: Design, source: Path, function: str, choices: Choices, entry: str = "main") -> str:
    """The function `entry` that runs the C++ and records."""
    streams = {stream.name: stream for stream in design.process.streams}
    scalars = {scalar.name for scalar in design.process.scalars}
    outputs = {name for name, _ in design.process.outputs}
    unknown = set(choices) - set(design.arguments) | set(choices) & set(streams)
    if unknown:
        raise OpenHlsError(f"--set: {', '.join(sorted(unknown))} is no scalar argument of {design.top}")
    arguments = []
    for name in design.arguments:
        if name in streams:
            role = "kInput" if streams[name].direction is Direction.READ else "kOutput"
        elif name in outputs:
            role = "kInOut" if f"{name}_in" in scalars else "kResult"
        else:
            role = "kScalar" if name in scalars else "kUnused"
        items = ", ".join(f"{{{first}, {last}, {step}}}" for first, last, step in choices.get(name, DEFAULT_CHOICE))
        arguments.append(f"    {{openhls::Role::{role}, {{{{{items}}}}}}},")
    table = "\n".join(arguments)
    return f"""#include "reference.hpp"
#include "{source.resolve()}"

int {entry}(int argc, char** argv) {{
  const std::vector<openhls::Argument> arguments = {{
{table}
  }};
  return openhls::run(&{function}, arguments, argc, argv);
}}
"""


def build_reference(design: Design, source: Path, function: str, includes: tuple[Path, ...], choices: Choices) -> Path:
    """The program that runs the C++ and records. `function` is the top's name with its namespaces."""
    main = design.folder / "reference.cpp"
    main.write_text(reference_text(design, source, function, choices))
    return link_reference(main, includes, design.folder / "reference")


def compile_reference(main: Path, includes: tuple[Path, ...], target: Path) -> None:
    """The C++ as software, an object file."""
    paths = [f"-I{HARNESS}", *(f"-I{include}" for include in includes), "-isystem", str(ap_headers())]
    simulate.run([*compiler(), "-std=c++17", "-O1", "-w", "-D__VITIS_HLS__", *paths, "-c", main, "-o", target])


def link_reference(main: Path, includes: tuple[Path, ...], program: Path) -> Path:
    compile_reference(main, includes, program.with_suffix(".o"))
    simulate.run(["g++", program.with_suffix(".o"), "-o", program])
    return program


def cosimulate(
    design: Design,
    source: Path,
    function: str,
    *,
    cases: int,
    seed: int,
    includes: tuple[Path, ...] = (),
    choices: Choices | None = None,
    patience: int = 20000,
) -> Cosimulation:
    """Run `cases` random cases through both. Raises OpenHlsError where a tool is missing or the C++ itself fails."""
    simulate.lint(list(design.files), design.top)
    simulate.second_reader(list(design.files), design.top)
    reference = build_reference(design, source, function, includes, choices or {})
    record = design.folder / "cases.bin"
    done = subprocess.run(
        [str(reference), str(cases), str(seed), str(record)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise OpenHlsError(f"the C++ itself fails with random inputs, seed {seed} on:\n{done.stderr.strip()}")
    program = build_simulation(list(design.files), design.top, design.process, design.arguments, design.folder)
    stalled = run_cases(program, record, stalls=True, patience=patience)
    free = run_cases(program, record, stalls=False, patience=patience)
    return Cosimulation(seed, stalled, free)
