# SPDX-License-Identifier: Apache-2.0
"""Removes what has no effect: unused operations, carried values, results, and arrays nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from openhls.ir import (
    ARRAY_ACCESSES,
    FALSE,
    Block,
    Const,
    Dataflow,
    Loop,
    Opcode,
    Operand,
    Operation,
    Process,
    Region,
    Value,
    blocks_of,
)

_KEPT = frozenset({Opcode.READ, Opcode.WRITE, Opcode.STORE})


def tidy(process: Process) -> Process:
    """The same process without what has no effect."""
    while True:
        live = live_values(process)
        unread = _unread_arrays(process)
        simpler = replace(process, body=_clean(process.body, live, unread))
        used = {operation.target for block in blocks_of(simpler.body) for operation in block.operations}
        used |= {
            name
            for region in _all(simpler.body)
            if isinstance(region, Dataflow)
            for c in region.calls
            for _, name in c.arrays
        }
        simpler = replace(
            simpler, arrays=tuple(array for array in process.arrays if array.name in used or array.external)
        )
        if simpler == process:
            return process
        process = simpler


def _all(regions: tuple[Region, ...]) -> Iterator[Region]:
    for region in regions:
        yield region
        if isinstance(region, Loop):
            yield from _all(region.body)


def _keeps(operation: Operation) -> bool:
    return operation.opcode in _KEPT and operation.predicate != FALSE


def _unread_arrays(process: Process) -> set[str]:
    read = {op.target for block in blocks_of(process.body) for op in block.operations if op.opcode is Opcode.LOAD}
    read |= {name for r in _all(process.body) if isinstance(r, Dataflow) for call in r.calls for _, name in call.arrays}
    return {array.name for array in process.arrays if not array.external and array.name not in read}


def live_values(process: Process) -> set[Value]:
    """Values that something with an effect depends on."""
    sources: dict[Value, tuple[Operand, ...]] = {}
    roots: list[Operand] = [operand for _, operand in process.outputs]
    unread = _unread_arrays(process)
    for region in _all(process.body):
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
            if kept:
                result.append(replace(region, operations=kept))
        elif isinstance(region, Loop):
            if region.enter == FALSE:
                continue
            result.append(
                replace(
                    region,
                    body=_clean(region.body, live, unread),
                    carried=tuple(each for each in region.carried if each.value in live),
                    results=tuple(each for each in region.results if each.value in live),
                )
            )
        elif region.enter != FALSE:
            result.append(region)
    return tuple(result)
