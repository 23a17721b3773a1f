# SPDX-License-Identifier: Apache-2.0
"""Streams that one process writes and reads: queues in an array, with a place to write to and a place to read from.

A process does one thing after the other, so a FIFO that waits would wait for ever. An array holds all words that the
queue can have at once. How many these are follows from the loops; where it does not, the C++ has to say a depth. A word
beyond that depth stops every simulation, as an index beyond an array does, and the hardware never ends the job.

`STORE queue` (openhls.frontend.streams) marks where a queue begins, empty.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from openhls.builder import Builder
from openhls.errors import Unsupported
from openhls.ir import (
    FALSE,
    TRUE,
    Array,
    Block,
    Const,
    Loop,
    Opcode,
    Operand,
    Operation,
    Partition,
    Region,
    Value,
    operations_of,
)
from openhls.lowered import Lowered, Queue
from openhls.names import Names

MOST_WORDS = 4096  # of a queue without a depth of its own
_MOST_BITS = 1024  # of a queue in registers
_MOST_REGISTERS = 8


# ---- how many words a queue can hold ----


@dataclass
class Fill:
    """The words in one queue at a point of the program: the least that it holds in every run or, with `most`, the most
    (inf: there is no bound). `peak` is the largest number up to there, in the same sense.
    """

    queue: str
    most: bool
    words: float = 0
    peak: float = 0

    def regions(self, regions: Sequence[Region]) -> None:
        for region in regions:
            if isinstance(region, Block):
                self._block(region)
            elif isinstance(region, Loop):
                self._loop(region)

    def _block(self, block: Block) -> None:
        written: Counter[Operand] = Counter()  # words by the condition of their writes
        for operation in (each for each in block.operations if each.target == self.queue):
            condition = operation.predicate
            always = condition == TRUE
            if operation.opcode is Opcode.WRITE:
                written[condition] += 1
                self._change(1 if always or self.most else 0)
            elif operation.opcode is Opcode.READ:
                # With the condition of a write in the same block it takes a word if that one gave one.
                paired = written[condition] > 0
                written[condition] -= paired
                taken = always or paired if self.most else always or not paired
                self._change(-1 if taken else 0)
            elif operation.opcode is Opcode.STORE:
                written.clear()
                self.words = 0 if always or not self.most else self.words

    def _change(self, by: int) -> None:
        self.words = max(0, self.words + by)
        self.peak = max(self.peak, self.words)

    def _loop(self, loop: Loop) -> None:
        """An iteration adds a constant to the bound, or leads to a constant: two of them show which."""
        before, seen = self.words, self.peak
        exact = loop.trip_count is not None and loop.trip_count.exact
        trips = loop.trip_count.most if exact and loop.trip_count is not None else math.inf
        first = self._after(loop, before)
        if trips > 1:
            certain = self.peak
            second = self._after(loop, first)
            step = second - first if math.inf not in (first, second) else 0
            self.words = self._last(loop, first, second, step, trips)
            if not self.most and trips == math.inf:
                self.peak = certain
            elif self.most and step > 0 and trips == math.inf:
                self.peak = math.inf
        if loop.enter != TRUE:  # the loop may be left out
            self.words = max(before, self.words) if self.most else min(before, self.words)
            self.peak = self.peak if self.most else seen

    def _last(self, loop: Loop, first: float, second: float, step: float, trips: float) -> float:
        """The bound after `trips` iterations, of which the first two gave `first` and `second`."""
        if trips == math.inf:
            if self.most:
                return math.inf if step > 0 else max(first, second)
            return 0 if step < 0 else min(first, second)
        if step > 0 and trips > 2:
            return self._after(loop, second + step * (trips - 3))
        there = max(0, second + step * (trips - 2))
        return max(there, self._after(loop, 0, quiet=True)) if self.most else there

    def _after(self, loop: Loop, before: float, *, quiet: bool = False) -> float:
        """The bound after an iteration that starts with `before`."""
        seen, self.words = self.peak, before
        self.regions(loop.body)
        self.peak = seen if quiet else self.peak
        return self.words


def _slots(queue: Queue, regions: Sequence[Region]) -> tuple[int, bool]:
    """How many words the array of a queue has, and whether the queue may want to hold more. Raises Unsupported."""
    least, most = Fill(queue.name, most=False), Fill(queue.name, most=True)
    least.regions(regions)
    most.regions(regions)
    if queue.is_static and most.words:
        raise Unsupported(
            queue.location,
            f"the static stream {queue.variable} may keep words from one call to the next",
            "read all that is written in the same call, or declare it without static",
        )
    which = f"the stream {queue.variable}, which one function writes and reads,"
    if queue.depth is None:
        if most.peak <= MOST_WORDS:
            return int(most.peak), False
        count = "any number of" if most.peak == math.inf else f"{most.peak:.0f}"
        raise Unsupported(
            queue.location,
            f"{which} may hold {count} words at once",
            f"say how many: #pragma HLS STREAM variable = {queue.variable} depth = 64; or write it in one stage of a "
            "DATAFLOW region and read it in another",
        )
    if least.peak > queue.depth:
        raise Unsupported(
            queue.location,
            f"{which} holds {least.peak:.0f} words at once, more than its depth of {queue.depth}",
            f"give it a depth of {least.peak:.0f}",
        )
    return min(queue.depth, int(min(most.peak, queue.depth))), most.peak > queue.depth


# ---- queues as arrays ----


@dataclass
class QueueArrays:
    """A queue as an array of `2 ** bits` words, and numbers: where the next word goes and comes from, how many there
    are, and whether there were more than `limit` of them (None: there cannot be)."""

    queue: Queue
    names: Names
    bits: int
    limit: int | None
    counts: bool
    words: Array = field(init=False)
    head: Array = field(init=False)
    tail: Array = field(init=False)
    count: Array = field(init=False)
    overflow: Array = field(init=False)

    def __post_init__(self) -> None:
        name, length = self.queue.name, 1 << self.bits
        registers = self.limit is None and length <= _MOST_REGISTERS and length * self.queue.width <= _MOST_BITS
        partition = Partition.COMPLETE if registers else Partition.NONE
        self.words = Array(name, self.queue.width, length, partition, location=self.queue.location)
        self.head, self.tail = self._number("read", self.bits), self._number("write", self.bits)
        self.count, self.overflow = self._number("count", self.bits + 1), self._number("overflow", 1)

    def _number(self, what: str, width: int) -> Array:
        name = self.names.fresh(f"{self.queue.name}_{what}")
        return Array(name, max(1, width), 1, Partition.COMPLETE, location=self.queue.location)

    @property
    def in_registers(self) -> bool:
        return self.words.partition is Partition.COMPLETE

    def numbers(self) -> list[Array]:
        """What becomes values."""
        counted = [self.count] if self.counts or self.limit is not None else []
        places = [self.head, self.tail] if self.bits else []
        overflow = [self.overflow] if self.limit is not None else []
        return [*places, *counted, *overflow, *([self.words] if self.in_registers else [])]


class Queues:
    """Writes accesses to queues as accesses to arrays, in the regions of a whole process. `values` are the arrays that
    become values, `memories` the others."""

    def __init__(self, names: Names, queues: list[Queue], regions: Sequence[Region]) -> None:
        self._builder = Builder(names.fresh)
        self._queues: dict[str, QueueArrays] = {}
        self._names = names
        operations = list(operations_of(tuple(regions)))
        looked_at = {each.target for each in operations if each.opcode is Opcode.EMPTY}
        self._unused = {queue.name for queue in queues if not queue.width}
        for queue in (each for each in queues if each.width):
            words, may_overflow = _slots(queue, regions)
            bits = max(0, words - 1).bit_length()
            limit = queue.depth if may_overflow else None
            self._queues[queue.name] = QueueArrays(queue, names, bits, limit, queue.name in looked_at)
        self.values = [array for each in self._queues.values() for array in each.numbers()]
        self.memories = [each.words for each in self._queues.values() if not each.in_registers]

    def run(self, regions: Sequence[Region]) -> list[Region]:
        """The process without queues."""
        return [*self._regions(regions), *self._ends()]

    def _regions(self, regions: Sequence[Region]) -> list[Region]:
        result: list[Region] = []
        for region in regions:
            if isinstance(region, Block):
                for operation in region.operations:
                    self._operation(operation)
                result.append(replace(region, operations=self._builder.take()))
            elif isinstance(region, Loop):
                result.append(replace(region, body=tuple(self._regions(region.body))))
            else:
                result.append(region)
        return result

    def _ends(self) -> list[Region]:
        """A job in which a queue was too small never ends."""
        result: list[Region] = []
        for each in self._queues.values():
            if each.limit is None:
                continue
            place = each.queue.location
            self._builder.location = place
            failed = self._load(each.overflow)
            result.append(Block(self._names.fresh("block"), self._builder.take(), place))
            nothing = Block(self._names.fresh("block"), (), place)
            label = self._names.fresh(f"{each.queue.name}_overflows")
            result.append(Loop(label, (), (nothing,), failed, enter=failed, location=place))
        return result

    def _operation(self, operation: Operation) -> None:
        self._builder.location = operation.location
        arrays = self._queues.get(operation.target)
        if operation.target in self._unused:
            return
        if arrays is None:
            self._builder.operations.append(operation)
        elif operation.opcode is Opcode.WRITE:
            self._write(arrays, operation.operands[0], operation.predicate)
        elif operation.opcode is Opcode.READ:
            assert operation.result is not None
            self._read(arrays, operation.result, operation.predicate)
        elif operation.opcode is Opcode.EMPTY:
            assert operation.result is not None
            count = self._load(arrays.count)
            self._builder.operations.append(
                Operation(Opcode.EQ, operation.result, (count, Const(count.width, 0)), operation.location)
            )
        else:
            for number in (arrays.head, arrays.tail, arrays.count):
                if number in self.values:
                    self._store(number, Const(number.width, 0), operation.predicate)

    def _write(self, arrays: QueueArrays, word: Operand, predicate: Operand) -> None:
        builder = self._builder
        place = self._place(arrays.tail, arrays)
        if arrays.limit is not None:
            # The word that is too much goes beyond the array, where a run stops.
            count = self._load(arrays.count)
            full = builder.fold(Opcode.EQ, 1, count, Const(count.width, arrays.limit))
            failed = builder.either(self._load(arrays.overflow), full)
            self._store(arrays.overflow, failed, predicate)
            place = builder.resized(place, arrays.bits + 1)
            place = builder.choice(full, Const(place.width, arrays.words.length), place)
        self._store(arrays.words, word, predicate, place)
        self._advance(arrays.tail, arrays, predicate)
        self._add(arrays, 1, predicate)

    def _read(self, arrays: QueueArrays, result: Value, predicate: Operand) -> None:
        place = self._place(arrays.head, arrays)
        self._builder.operations.append(
            Operation(Opcode.LOAD, result, (place,), self._builder.location, predicate, arrays.words.name)
        )
        self._advance(arrays.head, arrays, predicate)
        self._add(arrays, -1, predicate)

    def _place(self, number: Array, arrays: QueueArrays) -> Operand:
        return self._load(number) if arrays.bits else Const(1, 0)

    def _advance(self, number: Array, arrays: QueueArrays, predicate: Operand) -> None:
        if arrays.bits:
            following = self._builder.fold(Opcode.ADD, number.width, self._load(number), Const(number.width, 1))
            self._store(number, following, predicate)

    def _add(self, arrays: QueueArrays, by: int, predicate: Operand) -> None:
        if arrays.count in self.values:
            width = arrays.count.width
            changed = self._builder.fold(Opcode.ADD, width, self._load(arrays.count), Const(width, by % (1 << width)))
            self._store(arrays.count, changed, predicate)

    def _load(self, number: Array) -> Value:
        value = Value(self._builder.fresh(number.name), number.width)
        self._builder.operations.append(
            Operation(Opcode.LOAD, value, (Const(1, 0),), self._builder.location, target=number.name)
        )
        return value

    def _store(self, array: Array, value: Operand, predicate: Operand, place: Operand = FALSE) -> None:
        self._builder.operations.append(
            Operation(Opcode.STORE, None, (place, value), self._builder.location, predicate, array.name)
        )


def without_queues(lowered: Lowered) -> Lowered:
    """The process with its queues in arrays. Raises Unsupported for one whose size is not known."""
    queues = Queues(lowered.names, list(lowered.queues), lowered.process.body)
    body = tuple(queues.run(lowered.process.body))
    process = replace(lowered.process, body=body, arrays=(*lowered.process.arrays, *queues.values, *queues.memories))
    return replace(lowered, process=process, queues=(), values=(*lowered.values, *queues.values))
