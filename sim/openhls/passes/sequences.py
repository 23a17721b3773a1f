# SPDX-License-Identifier: Apache-2.0
"""Array arguments that are streams (INTERFACE axis, ap_fifo): accesses to elements 0, 1, 2 and so on, once each.

Until here they are memory (passes/bursts.py): requests for elements, and the elements. What the requests ask for must
be known, and must be the elements in their order. Then the requests go, and the elements are the words of a stream.
"""

from __future__ import annotations

from dataclasses import replace

from openhls.errors import Unsupported
from openhls.evaluate import evaluate
from openhls.ir import (
    REQUEST_FIELDS,
    TRUE,
    Block,
    Const,
    Direction,
    Loop,
    Operand,
    Operation,
    Process,
    Region,
    Stream,
    definitions_of,
    operations_of,
)
from openhls.lowered import Lowered
from openhls.passes.tidy import tidy

_ADVICE = "access every element once, from the first on, in one loop of its own, or make it ap_memory or m_axi"


def with_streams(lowered: Lowered) -> Lowered:
    """The process with each of the pointers `sequences` as a stream. Raises Unsupported where one is not in order."""
    process, counts = lowered.process, {}
    for name, element in sorted(lowered.sequences.items()):
        process, counts[name] = as_stream(process, name, element)
    return replace(lowered, process=process, sequences={}, counts=counts)


def as_stream(process: Process, name: str, element: int) -> tuple[Process, int]:
    """The process with memory `name` as a stream of that name, and how many words it has: one for each element, of
    `element` bytes."""
    known = {stream.name: stream for stream in process.streams}
    kinds = [kind for kind in ("r", "w") if f"{name}_{kind}" in known]
    if len(kinds) != 1:
        what = "is not used" if not kinds else "is read and written"
        raise Unsupported(process.location, f"{name} is a stream and {what}", _ADVICE)
    count = _requested(process, name, f"{name}_a{kinds[0]}", known[f"{name}_{kinds[0]}"].width // 8)
    word = known[f"{name}_{kinds[0]}"]
    if word.width != 8 * element:
        raise Unsupported(process.location, f"{name} is a stream, and its elements are accessed in parts", _ADVICE)
    direction = Direction.READ if kinds[0] == "r" else Direction.WRITE
    gone = {f"{name}_a{kinds[0]}", f"{name}_b"}
    streams = [stream for stream in process.streams if stream.name not in (*gone, word.name)]
    body = tuple(each for region in process.body for each in _renamed(region, gone, word.name, name))
    stream = Stream(name, word.width, direction, word.location)
    simpler = tidy(replace(process, streams=(*streams, stream), body=body))
    return replace(simpler, scalars=tuple(value for value in process.scalars if value.name != name)), count


def _requested(process: Process, name: str, requests: str, size: int) -> int:
    """How many elements of `size` bytes are asked for, one after the other. Raises Unsupported for any other order."""
    outside = [each for region in process.body if isinstance(region, Block) for each in region.operations]
    made = definitions_of(operations_of(process.body))
    total = 0
    asked = [each for each in operations_of(process.body) if each.target == requests]
    for operation in asked:
        word = (
            _value(operation.operands[0], name, made) if operation in outside and operation.predicate == TRUE else None
        )
        fields = _fields(word) if word is not None else {}
        # A request for one element has any stride.
        in_order = fields and fields["address"] == total * size and (fields["stride"] == 1 or fields["count"] == 1)
        if not in_order:
            raise Unsupported(
                operation.location,
                f"{name} is a stream, and its elements are not accessed one after the other",
                _ADVICE,
            )
        total += fields["count"]
    if not asked:
        raise Unsupported(process.location, f"{name} is a stream that a stage uses as an array", _ADVICE)
    return total


def _fields(word: int) -> dict[str, int]:
    """The fields of a request."""
    found, low = {}, 0
    for name, width in REQUEST_FIELDS:
        found[name] = word >> low & ((1 << width) - 1)
        low += width
    return found


def _value(operand: Operand, base: str, made: dict[str, Operation]) -> int | None:
    """What an operand is if memory begins at 0; None if it depends on anything but the address `base` of memory."""
    if isinstance(operand, Const):
        return operand.bits
    if operand.name == base:
        return 0
    operation = made.get(operand.name)
    if operation is None or operation.target:
        return None
    bits = [_value(each, base, made) for each in operation.operands]
    if any(each is None for each in bits):
        return None
    widths = [each.width for each in operation.operands]
    return evaluate(operation.opcode, operand.width, bits, widths, operation.low)  # type: ignore[arg-type]


def _renamed(region: Region, gone: set[str], old: str, new: str) -> list[Region]:
    """The region without accesses to the streams `gone`, and with `new` in place of `old`."""
    if isinstance(region, Loop):
        return [replace(region, body=tuple(each for part in region.body for each in _renamed(part, gone, old, new)))]
    if not isinstance(region, Block):
        return [region]
    operations = tuple(
        replace(each, target=new) if each.target == old else each
        for each in region.operations
        if each.target not in gone
    )
    return [replace(region, operations=operations)] if operations else []
