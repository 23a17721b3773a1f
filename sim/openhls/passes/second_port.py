# SPDX-License-Identifier: Apache-2.0
"""A second read port for array arguments that are only read, where a loop reads a bank more than once an iteration.

The port is an array of its own behind the same argument: nothing is stored to either, so they need no order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from openhls.analysis.storage import Kind, Storage, storage_of
from openhls.ir import (
    Array,
    Block,
    Loop,
    Opcode,
    Operation,
    Process,
    Program,
    Region,
    calls_of,
    definitions_of,
    loops_of,
    operations_of,
)

_SUFFIX = "_second"
_ONE_PORT = ("ram_1p", "rom_1p")  # types of BIND_STORAGE


def add_second_ports(program: Program) -> Program:
    """The program with every second read of a bank at the second port."""
    process = program.processes[program.top]
    storages = {name: storage for name, storage in _candidates(program, process).items() if _is_short(process, storage)}
    if not storages:
        return program
    second = {name: _second(storage.array) for name, storage in storages.items()}
    body = tuple(_shared(region, storages, second) for region in process.body)
    widened = replace(process, body=body, arrays=(*process.arrays, *second.values()))
    ports = [replace(port, array=second[port.array].name) for port in program.ports if port.array in second]
    return replace(program, processes={**program.processes, program.top: widened}, ports=(*program.ports, *ports))


def _second(array: Array) -> Array:
    return replace(array, name=f"{array.name}{_SUFFIX}", first=array.name)


def _candidates(program: Program, process: Process) -> dict[str, Storage]:
    """Arguments in memory that the top itself reads, and nothing else uses."""
    lent = {name for call in calls_of(process.body) for _, name in call.arrays}
    stored = {each.target for each in operations_of(process.body) if each.opcode is Opcode.STORE}
    arguments = {port.array for port in program.ports} - lent - stored
    names = {each.name for each in process.arrays} | {each.name for each in process.scalars}
    names |= {stream.name for stream in process.streams}
    arrays = [array for array in process.arrays if array.name in arguments and f"{array.name}{_SUFFIX}" not in names]
    found = {array.name: storage_of(array) for array in arrays if array.storage[0] not in _ONE_PORT}
    return {name: storage for name, storage in found.items() if storage.kind is Kind.RAM}


def _is_short(process: Process, storage: Storage) -> bool:
    """True if a loop reads a bank twice in an iteration."""
    bodies = [loop.body[0] for loop in loops_of(process.body) if loop.innermost]
    return any(
        max(Counter(_bank(each, storage, block) for each in _reads(block, storage)).values(), default=0) > 1
        for block in bodies
        if isinstance(block, Block)
    )


def _reads(block: Block, storage: Storage) -> list[Operation]:
    return [each for each in block.operations if each.opcode is Opcode.LOAD and each.target == storage.array.name]


def _bank(read: Operation, storage: Storage, block: Block) -> int | None:
    return storage.bank_of(read, definitions_of(block.operations))


def _shared(region: Region, storages: dict[str, Storage], second: dict[str, Array]) -> Region:
    """The region with the reads of each bank at its two ports in turns."""
    if isinstance(region, Loop):
        return replace(region, body=tuple(_shared(each, storages, second) for each in region.body))
    if not isinstance(region, Block):
        return region
    counts: Counter[tuple[str, int | None]] = Counter()
    operations = []
    for each in region.operations:
        storage = storages.get(each.target) if each.opcode is Opcode.LOAD else None
        if storage is not None:
            key = each.target, _bank(each, storage, region)
            counts[key] += 1
            if counts[key] % 2 == 0:
                each = replace(each, target=second[each.target].name)
        operations.append(each)
    return replace(region, operations=tuple(operations))
