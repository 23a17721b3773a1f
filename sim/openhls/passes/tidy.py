# SPDX-License-Identifier: Apache-2.0
"""Removes what has no effect: unused operations, carried values, results, and arrays that are not read."""

from __future__ import annotations

from dataclasses import replace

from openhls.ir import (
    ARRAY_ACCESSES,
    FALSE,
    Block,
    Const,
    Loop,
    Opcode,
    Operand,
    Operation,
    Process,
    Region,
    Value,
    calls_of,
    operations_of,
    walk,
)
from openhls.lowered import Lowered

_KEPT = frozenset({Opcode.READ, Opcode.WRITE, Opcode.STORE})


def tidy(process: Process) -> Process:
    """The same process without what has no effect."""
    while True:
        live = live_values(process)
        unread = _unread_arrays(process)
        simpler = replace(process, body=_clean(process.body, live, unread))
        used = {operation.target for operation in operations_of(simpler.body)} | _lent(simpler)
        arrays = tuple(array for array in process.arrays if array.name in used or array.external)
        simpler = replace(simpler, arrays=arrays)
        if simpler == process:
            return process
        process = simpler


def without_unused_arguments(lowered: Lowered) -> Lowered:
    """Numbers stay even if they are not used; a pointer without accesses is no port."""
    process = lowered.process
    live = live_values(process)
    kept = tuple(value for value in process.scalars if value in live or value.name in lowered.numbers)
    return replace(lowered, process=replace(process, scalars=kept))


def _lent(process: Process) -> set[str]:
    """Arrays that stages use."""
    return {name for call in calls_of(process.body) for _, name in call.arrays}


def _keeps(operation: Operation) -> bool:
    return operation.opcode in _KEPT and operation.predicate != FALSE


def _unread_arrays(process: Process) -> set[str]:
    read = {op.target for op in operations_of(process.body) if op.opcode is Opcode.LOAD} | _lent(process)
    return {array.name for array in process.arrays if not array.external and array.name not in read}


def live_values(process: Process) -> set[Value]:
    """Values that something with an effect depends on."""
    sources: dict[Value, tuple[Operand, ...]] = {}
    roots: list[Operand] = [operand for _, operand in process.outputs]
    unread = _unread_arrays(process)
    for region in walk(process.body):
        if isinstance(region, Block):
            for operation in region.operations:
                if operation.result is not None:
                    sources[operation.result] = operation.inputs()
                if _keeps(operation) and operation.target not in unread:
                    roots.extend(operation.inputs())
        elif isinstance(region, Loop):
            roots += [region.enter, region.again]
            for each in region.carried:
                sources[each.value] = (each.initial, each.following)
            for result in region.results:
                sources[result.value] = (result.source,)
        else:
            roots.append(region.enter)
            roots += [operand for call in region.calls for _, operand in call.scalars]
    live: set[Value] = set()
    while roots:
        operand = roots.pop()
        if isinstance(operand, Const) or operand in live:
            continue
        live.add(operand)
        roots.extend(sources.get(operand, ()))
    return live


def _clean(regions: tuple[Region, ...], live: set[Value], unread: set[str]) -> tuple[Region, ...]:
    result: list[Region] = []
    for region in regions:
        if isinstance(region, Block):
            kept = tuple(
                operation
                for operation in region.operations
                if (_keeps(operation) or operation.result in live)
                and not (operation.opcode in ARRAY_ACCESSES and operation.target in unread)
            )
            if kept or len(regions) == 1:
                result.append(replace(region, operations=kept))
        elif isinstance(region, Loop):
            if region.enter == FALSE:
                continue
            nothing = Block(f"{region.label}_body", (), region.location)
            result.append(
                replace(
                    region,
                    body=_clean(region.body, live, unread) or (nothing,),
                    carried=tuple(each for each in region.carried if each.value in live),
                    results=tuple(each for each in region.results if each.value in live),
                )
            )
        elif region.enter != FALSE:
            result.append(region)
    return tuple(result)
