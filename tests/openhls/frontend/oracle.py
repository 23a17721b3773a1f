# SPDX-License-Identifier: Apache-2.0
"""g++ against the interpreter: the same random inputs through both, every output compared."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from openhls.backend.cosim import build_reference, parse_choice
from openhls.frontend.compile import compile_program
from openhls.interpret import interpret
from openhls.ir import Direction, Program

PROGRAMS = Path(__file__).parents[1] / "programs"


@dataclass
class Case:
    """What went into the C++ and what came out of it."""

    seed: int
    scalars: dict[str, int]
    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]
    results: dict[str, int]


def read_cases(program: Program, path: Path) -> Iterator[Case]:
    """Reads the record of the reference (its layout is in reference.hpp)."""
    data = path.read_bytes()
    words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]
    position = 0

    def number(width: int) -> int:
        nonlocal position
        count = -(-width // 32)
        value = sum(word << (32 * i) for i, word in enumerate(words[position : position + count]))
        position += count
        return value

    top = program.processes[program.top]
    scalars = {value.name: value.width for value in top.scalars}
    widths = {name: operand.width for name, operand in top.outputs}
    streams = {stream.name: stream for stream in top.streams}
    for _ in range(number(32)):
        seed = number(32)
        given, inputs, outputs, results = {}, {}, {}, {}
        for name in program.arguments:
            key = f"{name}_in" if name in widths else name
            if key in scalars:
                given[key] = number(scalars[key])
        for direction, found in ((Direction.READ, inputs), (Direction.WRITE, outputs)):
            for name in program.arguments:
                if name in streams and streams[name].direction is direction:
                    found[name] = [number(streams[name].width) for _ in range(number(32))]
        if "result" in widths:
            results["result"] = number(widths["result"])
        for name in program.arguments:
            if name in widths:
                results[name] = number(widths[name])
        yield Case(seed, given, inputs, outputs, results)


def differences(
    source: Path,
    top: str,
    folder: Path,
    *,
    cases: int = 20,
    seed: int = 1,
    choices: tuple[str, ...] = (),
    includes: tuple[Path, ...] = (),
    function: str = "",
) -> list[str]:
    """Runs random cases; one line for each case that differs."""
    program = compile_program(source, top, includes)
    process = program.processes[program.top]
    design = SimpleNamespace(process=process, arguments=program.arguments, folder=folder, top=top)
    chosen = dict(parse_choice(text) for text in choices)
    reference = build_reference(design, source, function or top, includes, chosen)
    record = folder / "cases.bin"
    subprocess.run([reference, str(cases), str(seed), record], check=True)
    found = []
    for case in read_cases(program, record):
        outcome = interpret(program, case.scalars, case.inputs, case.seed)
        for what, expected, got in (
            ("outputs", case.results, outcome.outputs),
            ("streams", case.outputs, outcome.streams),
            ("unread words", {name: [] for name in case.inputs}, outcome.unread),
        ):
            if expected != got:
                found.append(f"seed {case.seed}: {what}: expected {expected}, got {got}")
    return found
