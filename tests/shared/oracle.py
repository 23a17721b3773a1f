# SPDX-License-Identifier: Apache-2.0
"""g++ against the interpreter: the same random inputs through both, every output compared."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from ir_interpreter import initial_state, interpret

from openhls.cosim import ELEMENTS, build_reference, parse_choice
from openhls.ir import Direction, Program


@dataclass
class Case:
    """What went into the C++ and what came out of it."""

    seed: int
    scalars: dict[str, int]
    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]
    results: dict[str, int]
    buffers: dict[str, tuple[bytes, bytes]]  # contents behind each pointer, before and after


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

    def buffer(size: int) -> bytes:
        count = -(-size // 4)
        return number(32 * count).to_bytes(4 * count, "little")[:size]

    top = program.processes[program.top]
    pointers = {port.name for port in program.memories} | {port.argument for port in program.ports}
    hidden = {name for state in program.states for name in (state.name, state.scalar)}
    scalars = {value.name: value.width for value in top.scalars if value.name not in pointers | hidden}
    widths = {name: operand.width for name, operand in top.outputs if name not in hidden}
    streams = {stream.name: stream for stream in top.streams}
    for _ in range(number(32)):
        seed = number(32)
        given, inputs, outputs, results, buffers = {}, {}, {}, {}, {}
        for name in program.arguments:
            key = f"{name}_in" if name in widths else name
            if key in scalars:
                given[key] = number(scalars[key])
        for direction, found in ((Direction.READ, inputs), (Direction.WRITE, outputs)):
            arrays = program.stream_arrays
            for name in (each for argument in program.arguments for each in arrays.get(argument, (argument,))):
                if name in streams and streams[name].direction is direction:
                    found[name] = [number(streams[name].width) for _ in range(number(32))]
        if "result" in widths:
            results["result"] = number(widths["result"])
        for name in program.arguments:
            if name in widths:
                results[name] = number(widths[name])
        for name in program.arguments:
            if name in pointers:
                size = number(32)
                buffers[name] = buffer(size), buffer(size)
        yield Case(seed, given, inputs, outputs, results, buffers)


def run_reference(
    program: Program,
    source: Path,
    folder: Path,
    *,
    cases: int,
    seed: int = 1,
    choices: tuple[str, ...] = (),
    elements: int = ELEMENTS,
    includes: tuple[Path, ...] = (),
    function: str = "",
) -> Path:
    """The record of random cases of the C++. `elements`: how many each pointer leads to."""
    process = program.processes[program.top]
    design = SimpleNamespace(
        process=process,
        arguments=program.arguments,
        memories=program.memories,
        ports=program.ports,
        stream_arrays=program.stream_arrays,
        sequences=program.sequences,
        queues=program.queues,
        layouts=program.layouts,
        folder=folder,
        top=program.top,
    )
    chosen = dict(parse_choice(text) for text in choices)
    sizes = {port.name: elements for port in program.memories}
    reference = build_reference(design, source, function or program.function, includes, chosen, sizes)
    record = folder / "cases.bin"
    subprocess.run([reference, str(cases), str(seed), record], check=True)
    return record


def differences(program: Program, record: Path) -> list[str]:
    """Runs recorded cases in the interpreter; one line for each case that differs."""
    found = []
    kept = initial_state(program)
    for case in read_cases(program, record):
        before = {name: contents for name, (contents, _) in case.buffers.items()}
        outcome = interpret(program, case.scalars, case.inputs, case.seed, before, kept)
        for what, expected, got in (
            ("outputs", case.results, outcome.outputs),
            ("streams", case.outputs, outcome.streams),
            ("unread words", {name: [] for name in case.inputs}, outcome.unread),
            ("buffers", {name: after for name, (_, after) in case.buffers.items()}, outcome.buffers),
        ):
            if expected != got:
                found.append(f"seed {case.seed}: {what}: expected {expected}, got {got}")
    return found
