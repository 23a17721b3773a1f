# SPDX-License-Identifier: Apache-2.0
"""Short loops inside loops that access memory: unrolled, they let the accesses around them become bursts.

for (int i = 0; i < n; ++i) {
  Row row = in[i];
  for (int k = 0; k < 16; ++k) row.data[k] += 1;  // 16 cycles, in which memory waits
  out[i] = row;
}
"""

from __future__ import annotations

from collections.abc import Iterator

from openhls.ir import Block, Const, Dataflow, Loop, Opcode, Operand, Operation, Pipeline, Process, Program, Region

MOST = 64  # iterations, as in the vendor's pipelining of loops without pragmas
Place = tuple[str, int]  # file and line


def loops_that_wait(program: Program) -> dict[Place, frozenset[Place]]:
    """Loops that ask memory for single elements, with the loops in them, where these are short and have no pragmas."""
    return {
        place_of(loop): frozenset(place_of(each) for each in loop.body if isinstance(each, Loop))
        for process in program.processes.values()
        for loop in _loops(process.body)
        if _asks_for_elements(process, loop) and all(map(_is_short, loop.body))
    }


def place_of(loop: Loop) -> Place:
    return loop.location.file, loop.location.line


def _loops(regions: tuple[Region, ...]) -> Iterator[Loop]:
    for region in regions:
        if isinstance(region, Loop):
            yield region
            yield from _loops(region.body)


def _is_short(region: Region) -> bool:
    if isinstance(region, Dataflow):
        return False
    trips = region.trip_count if isinstance(region, Loop) else None
    return isinstance(region, Block) or (
        region.innermost
        and trips is not None
        and trips.exact
        and trips.most <= MOST
        and region.pipeline == Pipeline()
        and not region.dependences
    )


def _asks_for_elements(process: Process, loop: Loop) -> bool:
    """True if a block of the loop itself has a request (openhls.ir.MemoryPort) for one element."""
    requests = {stream.name for stream in process.streams if stream.name.endswith(("_ar", "_aw"))}
    for block in (each for each in loop.body if isinstance(each, Block)):
        words: dict[Operand | None, Operation] = {each.result: each for each in block.operations}
        for each in block.operations:
            word = words.get(each.operands[0]) if each.opcode is Opcode.WRITE and each.target in requests else None
            if word is not None and word.opcode is Opcode.CONCAT and word.operands[0] == Const(32, 1):
                return True
    return False
