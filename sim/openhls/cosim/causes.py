# SPDX-License-Identifier: Apache-2.0
"""Why g++ and RTL may differ although openhls is right: the C++ itself says nothing about its result.

Where a comparison fails, the C++ runs again as software: with the sanitizer of undefined behaviour, and with two
contents of what it never writes. What they find is the cause, and the C++ has to be repaired first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from openhls.emit.design import Design
from openhls.ir import Direction

UNDEFINED = ("-fsanitize=undefined", "-fno-sanitize=vptr", "-g1")
# A constructor begins the life of its object, and g++ would drop the fill as a write that nobody may read.
FILLS = tuple((f"-ftrivial-auto-var-init={content}", "-fno-lifetime-dse") for content in ("zero", "pattern"))

# Runs the C++ with more flags of g++; gives what it says on stderr and its record, or None if it fails.
Run = Callable[[tuple[str, ...]], tuple[str, bytes] | None]


def cause(design: Design, sources: tuple[Path, ...], run: Run) -> str:
    """A sentence, or "" if nothing was found. `sources` are the files whose undefined behaviour counts."""
    return _undefined(sources, run) or _unwritten(design, run)


def _undefined(sources: tuple[Path, ...], run: Run) -> str:
    done = run(UNDEFINED)
    folders = {source.resolve().parent for source in sources}
    for file, line, what in re.findall(
        r"^(\S+?):(\d+):\d+: runtime error: (.*)$", done[0] if done else "", re.MULTILINE
    ):
        # By its name: with a compiler cache, the folder may be that of a copy compiled earlier.
        if any((folder / Path(file).name).is_file() for folder in folders):
            return f"{Path(file).name}:{line}: undefined behaviour of the C++: {what}; repair it first"
    return ""


def _unwritten(design: Design, run: Run) -> str:
    found = [run(fill) for fill in FILLS]
    if found[0] is None or found[1] is None or found[0][1] == found[1][1]:
        return ""
    words = (list(recorded(design, each[1])) for each in found if each is not None)
    for one, other in zip(*words, strict=False):
        if one.name != other.name or one.value != other.value:
            what = one.differences(other) if one.name == other.name else ""
            return f"{one.name}{what} depends on variables or fields that the C++ never writes: set them first"
    return "how many words there are depends on variables or fields that the C++ never writes: set them first"


# ---- records ----


@dataclass(frozen=True)
class Recorded:
    """A value of a record (values.hpp), and the fields of its bits, from bit 0 up."""

    name: str
    value: int
    fields: tuple[tuple[str, int], ...] = ()

    def differences(self, other: Recorded) -> str:
        """The fields that have other bits."""
        low, found = 0, []
        for name, width in self.fields:
            if (self.value ^ other.value) >> low & ((1 << width) - 1):
                found.append(name)
            low += width
        return f" ({', '.join(found)})" if found else ""


def recorded(design: Design, data: bytes) -> Iterator[Recorded]:
    """The values of a record, case by case, but for the seeds."""
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]
    position = 0

    def number(width: int) -> int:
        nonlocal position
        count = -(-width // 32)
        position += count
        return sum(word << (32 * i) for i, word in enumerate(words[position - count : position]))

    process = design.process
    buffers = {port.name for port in design.memories} | {port.argument for port in design.ports}
    hidden = {name for state in design.states for name in (state.name, state.scalar)}
    scalars = {each.name: each.width for each in process.scalars if each.name not in buffers | hidden}
    outputs = {name: operand.width for name, operand in process.outputs if name not in hidden}
    streams = {stream.name: stream for stream in process.streams}
    ends = [name for argument in design.arguments for name in design.stream_arrays.get(argument, (argument,))]
    for _ in range(number(32)):
        number(32)
        for name in design.arguments:
            key = f"{name}_in" if name in outputs else name
            if key in scalars:
                yield Recorded(f"argument {name}", number(scalars[key]))
        for direction in Direction:
            for stream in (streams[name] for name in ends if name in streams):
                if stream.direction is direction:
                    for at in range(number(32)):
                        fields = design.channels.get(stream.name, ())
                        yield Recorded(f"stream {stream.name}, word {at}", number(stream.width), tuple(fields))
        for name in ("result", *design.arguments):
            if name in outputs:
                yield Recorded("the result" if name == "result" else f"output {name}", number(outputs[name]))
        for name in design.arguments:
            if name in buffers:
                size = number(32)
                for when in ("before", "after"):
                    for at in range(-(-size // 4)):
                        yield Recorded(f"memory {name}, byte {4 * at}, {when} the job", number(32))
