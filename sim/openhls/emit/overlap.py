# SPDX-License-Identifier: Apache-2.0
"""Which loops around a dataflow region start an iteration before the one before it has ended.

An array that the C++ declares in the body of the loop holds nothing from one iteration to the next. So it may have two
buffers: its first stage fills one of them while the last one still reads the other. Whatever else stages share, an
iteration hands to the next one only when its last stage has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from openhls.ir import (
    STREAM_ACCESSES,
    Block,
    Call,
    Dataflow,
    Loop,
    Operation,
    Process,
    Region,
    calls_of,
    definitions_of,
    loops_of,
    operations_of,
)

_OF_POINTERS = ("ar", "r", "aw", "w", "b")  # ends of the names of streams of memory (openhls.ir.MemoryPort)


@dataclass(frozen=True)
class Ring:
    """Groups of stages that use something one after the other, and how many iterations may have it at once."""

    groups: tuple[int, ...]
    buffers: int = 1


@dataclass(frozen=True)
class Overlap:
    """`groups` has a number for each call of the region: those with the same one start together.

    `inner` are the values that change from one iteration to the next, `doubled` the arrays with two buffers.
    """

    region: Dataflow
    groups: tuple[int, ...]
    rings: tuple[Ring, ...]
    inner: frozenset[str]
    doubled: frozenset[str]


def overlaps_of(process: Process) -> dict[str, Overlap]:
    """The loops of a process whose iterations overlap, by the label of the region in them."""
    found = (_overlap(process, loop) for loop in loops_of(process.body))
    return {each.region.label: each for each in found if each is not None}


def _overlap(process: Process, loop: Loop) -> Overlap | None:
    regions = [region for region in loop.body if isinstance(region, Dataflow)]
    blocks = [region for region in loop.body if isinstance(region, Block)]
    if len(regions) != 1 or len(blocks) + 1 != len(loop.body) or any(call.results for call in regions[0].calls):
        return None
    (region,) = regions
    operations = [operation for block in blocks for operation in block.operations]
    groups = groups_of(region)
    users = _users(process, region, groups)
    if {_used(each) for each in operations} & users.keys():
        return None
    own = _own(process, loop, region)
    ordered = {(groups[before], groups[number]) for number, call in enumerate(region.calls) for before in call.after}
    rings = {name: Ring(tuple(dict.fromkeys(members))) for name, members in users.items()}
    rings = {name: ring for name, ring in rings.items() if len(ring.groups) > 1 and _in_order(ring, ordered)}
    explained = {pair for ring in rings.values() for pair in pairwise(ring.groups)}
    others = [Ring(pair) for pair in sorted(ordered - explained)]
    single = [*others, *(ring for name, ring in rings.items() if name not in own)]
    known = ordered | explained
    doubled = frozenset(name for name in own & rings.keys() if not _waits(rings[name], single, known))
    if not doubled:
        return None
    wider = [Ring(ring.groups, 2 if name in doubled else 1) for name, ring in rings.items()]
    inner = frozenset(item.value.name for item in loop.carried) | definitions_of(operations).keys()
    return Overlap(region, groups, (*others, *wider), inner, doubled)


def groups_of(region: Dataflow) -> tuple[int, ...]:
    """For each call the number of the first one that FIFOs connect it with."""
    groups = list(range(len(region.calls)))
    fifos = {fifo.name for fifo in region.fifos}
    ends: dict[str, int] = {}
    for number, call in enumerate(region.calls):
        for name in (name for _, name in call.streams if name in fifos):
            joined = groups[ends.setdefault(name, number)], groups[number]
            groups = [min(joined) if group in joined else group for group in groups]
    return tuple(groups)


def _users(process: Process, region: Dataflow, groups: tuple[int, ...]) -> dict[str, list[int]]:
    """The groups that use each array and stream of the process, in the order in which they have it."""
    tables = {array.name for array in process.arrays if array.initial is not None}
    fifos = {fifo.name for fifo in region.fifos}
    users: dict[str, list[int]] = {}
    for group, call in zip(groups, region.calls, strict=True):
        streams = {_memory(name) for _, name in call.streams if name not in fifos}
        for name in sorted({name for _, name in call.arrays} - tables | streams):
            users.setdefault(name, []).append(group)
    return users


def _lent(call: Call) -> set[str]:
    return {name for _, name in (*call.arrays, *call.streams)}


def _used(access: Operation) -> str:
    return _memory(access.target) if access.opcode in STREAM_ACCESSES else access.target


def _memory(stream: str) -> str:
    """The stream, or `*` and a pointer for all the streams of the pointer, which count as one."""
    pointer, _, kind = stream.rpartition("_")
    return f"*{pointer}" if pointer and kind in _OF_POINTERS else stream


def _own(process: Process, loop: Loop, region: Dataflow) -> set[str]:
    """Arrays that only this region uses, and only within an iteration."""
    elsewhere = {operation.target for operation in operations_of(process.body)}
    elsewhere |= {name for call in calls_of(_without(process.body, region)) for name in _lent(call)}
    external = {array.name for array in process.arrays if array.external or array.initial is not None}
    return set(loop.fresh) - elsewhere - external


def _without(regions: Iterable[Region], region: Dataflow) -> tuple[Region, ...]:
    """All other regions, those in loops side by side with these."""
    found: list[Region] = []
    for each in regions:
        if isinstance(each, Loop):
            found += _without(each.body, region)
        elif each is not region:
            found.append(each)
    return tuple(found)


def _in_order(ring: Ring, ordered: set[tuple[int, int]]) -> bool:
    """False for streams that only look as if they were of one pointer: their stages do not wait for one another."""
    return all(second in _reached(first, ordered) for first, second in pairwise(ring.groups))


def _waits(ring: Ring, others: Iterable[Ring], ordered: set[tuple[int, int]]) -> bool:
    """True if the first group of a ring waits for the last one anyway, so that a second buffer would be of no use."""
    behind, before = _reached(ring.groups[-1], ordered), _reached(ring.groups[0], {(b, a) for a, b in ordered})
    return any(other.groups[-1] in behind and other.groups[0] in before for other in others)


def _reached(start: int, pairs: set[tuple[int, int]]) -> set[int]:
    found = {start}
    while more := {b for a, b in pairs if a in found} - found:
        found |= more
    return found
