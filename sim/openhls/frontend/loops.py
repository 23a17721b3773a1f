# SPDX-License-Identifier: Apache-2.0
"""What the source says about a loop: its name, its pragmas, how often it runs."""

from __future__ import annotations

from dataclasses import replace

from openhls.errors import OpenHlsError, Unsupported
from openhls.evaluate import evaluate
from openhls.frontend.llvm.module import Instruction, Module
from openhls.frontend.memory import Memory
from openhls.frontend.pragmas import LoopNote, Notes, Pragma
from openhls.ir import (
    Carried,
    Const,
    Dependence,
    Location,
    Loop,
    Operand,
    Operation,
    Pipeline,
    TripCount,
    Value,
    blocks_of,
)
from openhls.names import Names

_MOST_COUNTED = 1 << 22


def describe_loop(
    module: Module, notes: Notes, memory: Memory, branch: Instruction, location: Location, loop: Loop, names: Names
) -> Loop:
    """The loop with its label, location, pragmas and trip count."""
    place = module.loop_starts.get(branch.loop)
    note = notes.loops.get(place) if place is not None else None
    if place is not None and not place[0].startswith(module.hidden):
        location = Location(place[0], place[1], location.caller)
    trip_count = count_trips(loop)
    # The copy of a struct with an array in it is a loop on a line that has none.
    if note is None and place is not None and any(place[:2] == key[:2] for key in notes.loops):
        raise OpenHlsError(f"{location}: the pragmas of this loop were lost; this is a fault of openhls")
    if note is None:
        return replace(loop, label=names.fresh(f"loop_{location.line}"), location=location, trip_count=trip_count)
    _check_unrolled(note, notes)
    pipeline = note.of_kind("PIPELINE")
    if pipeline and "rewind" in pipeline[0].words:
        notes.warn(pipeline[0].location, "PIPELINE rewind: the next run of the loop starts when this one has ended")
    stated_interval = _pipeline(pipeline[0]) if pipeline else Pipeline()
    if pipeline and not loop.innermost and not stated_interval.off:
        raise Unsupported(
            pipeline[0].location,
            "PIPELINE of a loop with loops in it",
            "unroll the inner loops, or pipeline them instead",
        )
    stated = note.of_kind("LOOP_TRIPCOUNT")
    if trip_count is None and stated:
        trip_count = _stated_trips(stated[0], notes)
    return replace(
        loop,
        label=names.fresh(note.label or f"loop_{location.line}"),
        location=location,
        name=note.label,
        trip_count=trip_count,
        pipeline=stated_interval,
        dependences=tuple(
            each for pragma in note.of_kind("DEPENDENCE") for each in _dependences(pragma, memory, notes, location)
        ),
    )


def _stated_trips(pragma: Pragma, notes: Notes) -> TripCount | None:
    """They are for the report alone, so a number that is not known is a warning."""
    try:
        return TripCount(pragma.number("min", 0), pragma.number("max", 0))
    except Unsupported as error:
        notes.warn(pragma.location, error.problem)
        return None


def _check_unrolled(note: LoopNote, notes: Notes) -> None:
    for pragma in note.of_kind("UNROLL"):
        if "factor" not in pragma.options and "off" not in pragma.words:
            notes.warn(note.location, "UNROLL has no effect: the trip count of this loop is not a constant")


def _pipeline(pragma: Pragma) -> Pipeline:
    if "off" in pragma.words or "off" in pragma.options:
        return Pipeline(off=True)
    interval = pragma.number("ii", 1)  # as Vitis has it
    if interval < 1:
        raise Unsupported(pragma.location, f"PIPELINE II = {interval}", "write II = 1 or more")
    return Pipeline(interval)


def _dependences(pragma: Pragma, memory: Memory, notes: Notes, near: Location) -> list[Dependence]:
    words = pragma.words
    kind = pragma.options.get("type", "intra" if "intra" in words else "inter").lower()
    dependent = pragma.options.get("dependent", "false" if "false" in words else "true").lower() == "true"
    direction = pragma.options.get("direction", next((w for w in ("raw", "war", "waw") if w in words), "all")).upper()
    distance = pragma.number("distance", 1)
    arrays = memory.named(pragma.options.get("variable", ""), near)
    notes.dependences[pragma.location] = bool(arrays) or notes.dependences.get(pragma.location, False)
    return [
        Dependence(
            array.name,
            kind == "inter",
            dependent,
            "all" if direction == "ALL" else direction,
            distance,
            pragma.location,
        )
        for array in arrays
    ]


def count_trips(loop: Loop) -> TripCount | None:
    """Runs the control of a loop whose exit depends on constants only."""
    definitions = {
        operation.result: operation
        for block in blocks_of(loop.body)
        for operation in block.operations
        if operation.result
    }
    carried = {each.value: each for each in loop.carried}
    needed: set[Value] = set()
    if not _collect(loop.again, definitions, carried, needed):
        return None
    state = {value: carried[value].initial.bits for value in needed}  # type: ignore[union-attr]
    for count in range(1, _MOST_COUNTED):
        values: dict[Value, int] = dict(state)
        if not _value(loop.again, definitions, values):
            return TripCount(count, count, exact=True)
        if count > 16 and not needed:
            return None
        state = {value: _value(carried[value].following, definitions, values) for value in needed}
    return None


def _collect(
    operand: Operand, definitions: dict[Value, Operation], carried: dict[Value, Carried], needed: set[Value]
) -> bool:
    """Finds the carried values that an operand depends on; False if it depends on anything else."""
    stack, seen = [operand], set()
    while stack:
        value = stack.pop()
        if isinstance(value, Const) or value in seen:
            continue
        seen.add(value)
        if len(seen) > 64:
            return False
        each = carried.get(value)
        if each is not None:
            if not isinstance(each.initial, Const):
                return False
            needed.add(value)
            stack.append(each.following)
        elif value not in definitions or definitions[value].target:
            return False
        else:
            stack.extend(definitions[value].operands)
    return True


def _value(operand: Operand, definitions: dict[Value, Operation], values: dict[Value, int]) -> int:
    if isinstance(operand, Const):
        return operand.bits
    if operand not in values:
        it = definitions[operand]
        bits = [_value(each, definitions, values) for each in it.operands]
        values[operand] = evaluate(it.opcode, operand.width, bits, [each.width for each in it.operands], it.low)
    return values[operand]
