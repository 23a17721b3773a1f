# SPDX-License-Identifier: Apache-2.0
"""Memories with two ports that read or write, where a port to read and one to write keep a loop from its interval.

Only loops with PIPELINE count: other memories stay as they are, which takes less hardware.
"""

from __future__ import annotations

from dataclasses import replace

from openhls.analysis.exclusive import exclusive
from openhls.analysis.storage import Kind, Storage, storage_of
from openhls.ir import (
    ARRAY_ACCESSES,
    Block,
    Loop,
    Opcode,
    Process,
    Region,
    calls_of,
    definitions_of,
    loops_of,
)

_TYPES = ("", "ram_2p", "ram_t2p")  # of BIND_STORAGE that allow it
_PLACES = ("", "auto", "bram", "uram")


def add_two_ports(process: Process) -> Process:
    """The process with two ports for the arrays that need them, and every access to these at one of the ports."""
    lent = {name for call in calls_of(process.body) for _, name in call.arrays}
    own = [array for array in process.arrays if not array.external and array.name not in lent]
    known = [storage_of(array) for array in own if array.storage[0] in _TYPES and array.storage[1] in _PLACES]
    wide = {each.array.name: each for each in known if each.kind is Kind.RAM and _is_short(process, each)}
    if not wide:
        return process
    arrays = tuple(replace(array, two_ports=array.name in wide) for array in process.arrays)
    return replace(process, arrays=arrays, body=tuple(_shared(region, wide) for region in process.body))


def _is_short(process: Process, storage: Storage) -> bool:
    """True if a loop would reach a shorter interval with two ports, and asks for one."""
    for loop in loops_of(process.body):
        wish = loop.pipeline.interval
        if not loop.innermost or wish is None or not isinstance(loop.body[0], Block):
            continue
        loads, stores = (_most(loop.body[0], storage, opcode) for opcode in (Opcode.LOAD, Opcode.STORE))
        separate = max(loads, stores)
        if separate > wish and -(-(loads + stores) // 2) < separate:
            return True
    return False


def _most(block: Block, storage: Storage, opcode: Opcode) -> int:
    """The most accesses of a kind to one bank in an iteration."""
    found: dict[int | None, int] = {}
    for (bank, kind), sharing in _accesses(block, storage).items():
        if kind is opcode:
            found[bank] = len(sharing)
    anywhere = found.pop(None, 0)
    return anywhere + max(found.values(), default=0)


def _accesses(block: Block, storage: Storage) -> dict[tuple[int | None, Opcode], list[list[int]]]:
    """The accesses to each bank by their numbers in the block; stores of branches that exclude each other are together,
    for they can share a port."""
    definitions = definitions_of(block.operations)
    found: dict[tuple[int | None, Opcode], list[list[int]]] = {}
    for number, each in enumerate(block.operations):
        if each.opcode not in ARRAY_ACCESSES or each.target != storage.array.name:
            continue
        sharing = found.setdefault((storage.bank_of(each, definitions), each.opcode), [])
        for others in sharing if each.opcode is Opcode.STORE else ():
            if all(exclusive(each.predicate, block.operations[n].predicate, definitions) for n in others):
                others.append(number)
                break
        else:
            sharing.append([number])
    return found


def _shared(region: Region, wide: dict[str, Storage]) -> Region:
    """The region with the accesses to each bank at its two ports in turns."""
    if isinstance(region, Loop):
        return replace(region, body=tuple(_shared(each, wide) for each in region.body))
    if not isinstance(region, Block):
        return region
    operations = list(region.operations)
    for storage in wide.values():
        turns: dict[int | None, int] = {}
        for (bank, _), sharing in _accesses(region, storage).items():
            for numbers in sharing:
                turn = turns.get(bank, 0)
                turns[bank] = turn + 1
                for number in numbers:
                    operations[number] = replace(operations[number], port=turn % 2)
    return replace(region, operations=tuple(operations))
