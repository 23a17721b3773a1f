# SPDX-License-Identifier: Apache-2.0
"""Accesses to memory behind a pointer become requests and words on streams (openhls.ir.MemoryPort).

Until here they are loads and stores whose target is the pointer and whose index is a byte address. In a loop that
touches consecutive or evenly spaced elements, one in every iteration, the request for all of them goes out before the
loop. Any other access asks for its element, and the next block takes it.
"""

from __future__ import annotations

from dataclasses import replace

from openhls.errors import Unsupported
from openhls.ir import (
    ELEMENT_BITS,
    REQUEST_WIDTH,
    Block,
    Const,
    Direction,
    Location,
    Loop,
    Opcode,
    Operand,
    Operation,
    Process,
    Region,
    Stream,
    Value,
)
from openhls.lowered import Lowered
from openhls.names import Names
from openhls.passes.runs import Runs
from openhls.passes.slopes import NotEven
from openhls.wrapping import Wrapping

SUFFIXES = {Opcode.LOAD: ("ar", "r"), Opcode.STORE: ("aw", "w")}
DIRECTIONS = {"ar": Direction.WRITE, "r": Direction.READ, "aw": Direction.WRITE, "w": Direction.WRITE}
ANSWER = "b"
BURST_HINT = (
    "give it a loop of its own, counted by an int, that takes one whole element in every iteration, in even steps, "
    "without `break`"
)


def memory_stream(pointer: str, suffix: str, width: int, location: Location) -> Stream:
    """A stream of a memory port; `width` is that of an element."""
    bits = {"r": width, "w": width, ANSWER: 1}.get(suffix, REQUEST_WIDTH)
    return Stream(f"{pointer}_{suffix}", bits, DIRECTIONS.get(suffix, Direction.READ), location)


def with_requests(lowered: Lowered) -> Lowered:
    """The process with requests and words on streams for what it accesses in memory."""
    bursts = Bursts(lowered.names, lowered.pointers, lowered.wrapping, dict(lowered.widths))
    return replace(lowered, process=bursts.rewrite(lowered.process))


class Bursts:
    """Rewrites a process whose `pointers` are named like their scalars, and to which stages access them in elements of
    `widths`; `streams` are those it then uses."""

    def __init__(self, names: Names, pointers: frozenset[str], wrapping: Wrapping, widths: dict[str, int]) -> None:
        self.names = names
        self.pointers = pointers
        self.wrapping = wrapping
        self.widths = widths
        self.streams: dict[str, Stream] = {}

    def rewrite(self, process: Process) -> Process:
        """The process with its streams. Raises Unsupported for an access that a pipelined loop cannot make."""
        body = self._regions(process.body)
        known = {stream.name for stream in process.streams}
        added = (stream for name, stream in self.streams.items() if name not in known)
        return replace(process, body=body, streams=(*process.streams, *added))

    def _is_access(self, operation: Operation) -> bool:
        return operation.target in self.pointers and operation.opcode in SUFFIXES

    def _stream(self, operation: Operation, suffix: str) -> str:
        width = self._width(operation)
        if self.widths.setdefault(operation.target, width) != width:
            raise Unsupported(
                operation.location,
                f"{operation.target} is accessed in pieces of {width} and of {self.widths[operation.target]} bits",
                "access whole elements of one type",
            )
        if width not in ELEMENT_BITS:
            raise Unsupported(
                operation.location, f"elements of {width} bits in memory", "use 8, 16, 32 ... 1024 bits, as ap_uint"
            )
        stream = memory_stream(operation.target, suffix, width, operation.location)
        return self.streams.setdefault(stream.name, stream).name

    @staticmethod
    def _width(operation: Operation) -> int:
        if operation.opcode is Opcode.STORE:
            return operation.operands[1].width
        assert operation.result is not None
        return operation.result.width

    # ---- regions ----

    def _regions(self, regions: tuple[Region, ...]) -> tuple[Region, ...]:
        result: list[Region] = []
        for region in regions:
            if isinstance(region, Block):
                result += self._block(region)
            elif isinstance(region, Loop):
                result += self._loop(region)
            else:
                result.append(region)
        return tuple(result)

    def _loop(self, loop: Loop) -> list[Region]:
        body = loop.body[0] if loop.innermost else None
        if not isinstance(body, Block) or not any(map(self._is_access, body.operations)):
            return [replace(loop, body=self._regions(loop.body))]
        try:
            return self._run(loop, body)
        except NotEven as error:
            if loop.pipeline.interval is not None:
                access = next(operation for operation in body.operations if self._is_access(operation))
                raise Unsupported(
                    access.location, f"an access to memory in the pipelined loop {loop.label}: {error}", BURST_HINT
                ) from None
            return [replace(loop, body=self._regions(loop.body))]

    # ---- one run for a whole loop ----

    def _run(self, loop: Loop, body: Block) -> list[Region]:
        accesses = [operation for operation in body.operations if self._is_access(operation)]
        runs = Runs(self.names, loop, body, self.wrapping)
        self._check_alone(accesses, runs)
        count = runs.count()
        before: list[Region] = []
        after: list[Region] = []
        replaced: dict[int, Operation] = {}
        for access in accesses:
            size = self._width(access) // 8
            predicate = runs.both(loop.enter, runs.invariant(access.predicate))
            request = runs.request(access.operands[0], size, count)
            asks, moves = (self._stream(access, suffix) for suffix in SUFFIXES[access.opcode])
            operations = (*runs.take(), self._write(asks, request, predicate, access.location))
            before.append(Block(self.names.fresh(f"{asks}_request"), operations, access.location))
            replaced[id(access)] = self._moved(access, moves)
            if access.opcode is Opcode.STORE:
                after.append(self._answer(access, predicate))
        operations = tuple(replaced.get(id(operation), operation) for operation in body.operations)
        return [*before, replace(loop, body=(replace(body, operations=operations),)), *after]

    @staticmethod
    def _check_alone(accesses: list[Operation], runs: Runs) -> None:
        """One load and one store of a pointer at most, and then of the same element, another one in each iteration:
        loads run ahead of stores."""
        first: dict[tuple[str, Opcode], Operation] = {}
        for access in accesses:
            if first.setdefault((access.target, access.opcode), access) is not access:
                raise NotEven(f"{access.target} is accessed twice in an iteration")
        for (target, opcode), access in first.items():
            store = first.get((target, Opcode.STORE))
            if opcode is Opcode.LOAD and store is not None and store.operands[0] != access.operands[0]:
                raise NotEven(f"{target} is read and written at different places")
            if opcode is Opcode.LOAD and store is not None and not runs.moves(access.operands[0]):
                raise NotEven(f"{target} is read and written at steps that are not constant, or at one place")

    def _moved(self, access: Operation, stream: str) -> Operation:
        """The access as a transfer on its stream."""
        operands = access.operands[1:] if access.opcode is Opcode.STORE else ()
        opcode = Opcode.WRITE if access.opcode is Opcode.STORE else Opcode.READ
        return replace(access, opcode=opcode, operands=operands, target=stream)

    def _write(self, stream: str, word: Operand, predicate: Operand, location: Location) -> Operation:
        return Operation(Opcode.WRITE, None, (word,), location, predicate, stream)

    def _answer(self, access: Operation, predicate: Operand) -> Block:
        """Waits until memory has what was written."""
        stream = self._stream(access, ANSWER)
        taken = Value(self.names.fresh(f"{stream}_taken"), 1)
        operation = Operation(Opcode.READ, taken, (), access.location, predicate, stream)
        return Block(self.names.fresh(f"{stream}_wait"), (operation,), access.location)

    # ---- element by element ----

    def _block(self, block: Block) -> list[Region]:
        """The block in pieces: each access begins in one of them and ends in the next."""
        result: list[Region] = []
        pending: list[Operation] = []
        for operation in block.operations:
            if not self._is_access(operation):
                pending.append(operation)
                continue
            asks, moves = (self._stream(operation, suffix) for suffix in SUFFIXES[operation.opcode])
            word = Value(self.names.fresh(f"{asks}_word"), REQUEST_WIDTH)
            parts = (Const(32, 1), Const(32, 1), operation.operands[0])
            pending.append(Operation(Opcode.CONCAT, word, parts, operation.location))
            pending.append(self._write(asks, word, operation.predicate, operation.location))
            if operation.opcode is Opcode.STORE:
                pending.append(self._moved(operation, moves))
            result.append(self._piece(block, pending))
            if operation.opcode is Opcode.STORE:
                result.append(self._answer(operation, operation.predicate))
                pending = []
            else:
                pending = [self._moved(operation, moves)]
        if not result:
            return [block]
        if pending:
            result.append(self._piece(block, pending))
        return result

    def _piece(self, block: Block, operations: list[Operation]) -> Block:
        return replace(block, label=self.names.fresh(block.label), operations=tuple(operations))
