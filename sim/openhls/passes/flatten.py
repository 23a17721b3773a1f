# SPDX-License-Identifier: Apache-2.0
"""A loop around one innermost loop becomes a single loop, so that the pipeline does not drain at every row.

An iteration of the new loop is one of the inner loop. In the first one of a row it also runs what stands before the
inner loop, in the last one what stands behind it. Operations without an effect run in every iteration: they see the
same values, or their results are not used. A row whose inner loop is skipped costs one iteration.

What the inner loop starts a row with is worked out at the end of the row before, so that no choice stands between a
carried value and its use. Where it needs a word or an element that is read at the head of its row, there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from openhls.builder import Builder
from openhls.ir import (
    FALSE,
    PREDICATED,
    TRUE,
    Block,
    Carried,
    Const,
    Loop,
    Opcode,
    Operand,
    Operation,
    Process,
    Region,
    Result,
    TripCount,
    Value,
    definitions_of,
)
from openhls.passes.balance import balance
from openhls.passes.look_ahead import Copy, cone_of, look_ahead


@dataclass(frozen=True)
class Flat:
    """`loop`, and the operations on values from before it that it starts with. `inner` is what it was made of."""

    before: tuple[Operation, ...]
    loop: Loop
    inner: Loop


Judge = Callable[[Flat], bool]


def flatten_process(process: Process, judge: Judge) -> Process:
    """`process` with the nests flattened that `judge` accepts, inner ones first."""
    return replace(process, body=flatten_regions(process.body, judge))


def flatten_regions(regions: tuple[Region, ...], judge: Judge) -> tuple[Region, ...]:
    found: list[Region] = []
    for region in regions:
        if isinstance(region, Loop) and not region.innermost:
            region = replace(region, body=flatten_regions(region.body, judge))
            flat = flatten(region)
            if flat is not None and judge(flat):
                add_operations(found, flat)
                region = flat.loop
        found.append(region)
    return tuple(found)


def add_operations(regions: list[Region], flat: Flat) -> None:
    """The operations before the loop, in the block before it if there is one."""
    last = regions[-1] if regions else None
    if isinstance(last, Block):
        regions[-1] = replace(last, operations=(*last.operations, *flat.before))
    elif flat.before:
        regions.append(Block(f"{flat.loop.label}_before", flat.before, flat.loop.location))


def flatten(outer: Loop) -> Flat | None:
    """One loop for `outer` and the innermost loop in it; None if its body is something else, or PIPELINE is off.

    Promises about dependences hold for the iterations of one of the two loops only and are dropped.
    """
    position = next((n for n, region in enumerate(outer.body) if not isinstance(region, Block)), None)
    if position is None or any(not isinstance(region, Block) for region in outer.body[position + 1 :]):
        return None
    inner = outer.body[position]
    if not isinstance(inner, Loop) or not inner.innermost or outer.pipeline.off or inner.pipeline.off:
        return None
    ahead = look_ahead(replace(balance(inner), label=f"{outer.label}.row"))
    head = joined(f"{outer.label}_head", outer.body[:position], ahead.first, outer)
    rear = joined(f"{outer.label}_rear", outer.body[position + 1 :], (), outer)
    rows = look_ahead(replace(outer, body=(head, ahead.loop, rear)))
    loop = Flattening(rows.loop, before := list(rows.first)).run()
    return Flat(tuple(before), replace(loop, label=inner.label), inner)


def joined(label: str, blocks: tuple[Region, ...], more: tuple[Operation, ...], outer: Loop) -> Block:
    operations = [operation for block in blocks if isinstance(block, Block) for operation in block.operations]
    return Block(label, (*operations, *more), outer.location)


class Flattening(Builder):
    """Builds the loop from one whose body is a block, the inner loop and a block; `before` gets the operations in front
    of the loop."""

    def __init__(self, outer: Loop, before: list[Operation]) -> None:
        numbers = count(1)
        super().__init__(lambda _: f"{outer.label}.{next(numbers)}")
        self.outer, self.before = outer, before
        self.carried: list[Carried] = []
        self.rows: list[Carried] = []  # as in the inner loop, with a start that is known early
        head, inner, rear = self.outer.body
        assert isinstance(head, Block)
        assert isinstance(inner, Loop)
        assert isinstance(rear, Block)
        self.head, self.inner, self.rear = head, inner, rear
        self.location = inner.location
        self.handed_on = {result.value.name: result.source for result in inner.results}
        self.definitions = definitions_of(head.operations)
        label = self.outer.label
        starts = {item.value.name: item.initial for item in self.outer.carried}
        self.first_row = Copy(starts, f"{label}.start", {}, self.before)
        self.next_row = Copy(
            {item.value.name: self.mapped(item.following) for item in self.outer.carried},
            f"{label}.next",
            self.definitions | definitions_of(rear.operations),
            self.operations,
        )
        effects = any(op.opcode in PREDICATED for op in head.operations)
        self.first: Operand = Value(f"{label}.first", 1) if effects else FALSE

    def run(self) -> Loop:
        self.run_head()
        for item in self.inner.carried:
            self.start_row(item)
        active = self.activity()
        (block,) = self.inner.body
        assert isinstance(block, Block)
        for operation in block.operations:
            self.add(operation, active)
        more = self.both(active, self.inner.again)
        last = self.inverted(more)
        for operation in self.rear.operations:
            self.add(self.renamed(operation), last)
        again = self.either(more, self.mapped(self.outer.again))
        self.end_row(last)
        return replace(
            self.inner,
            carried=tuple(self.carried),
            body=(replace(block, operations=tuple(self.operations)),),
            again=again,
            results=tuple(Result(result.value, self.mapped(result.source)) for result in self.outer.results),
            enter=self.outer.enter,
            dependences=(),
            trip_count=product(self.outer.trip_count, self.inner.trip_count),
        )

    def run_head(self) -> None:
        """The block before the inner loop; what it reads is kept for the rest of the row."""
        for operation in self.head.operations:
            if operation.opcode not in PREDICATED or operation.result is None:
                self.add(operation, self.first)
                continue
            name, width = operation.result.name, operation.result.width
            fresh, kept = Value(f"{name}.fresh", width), Value(f"{name}.kept", width)
            self.add(replace(operation, result=fresh), self.first)
            self.operations.append(
                Operation(Opcode.SELECT, operation.result, (self.first, fresh, kept), operation.location)
            )
            self.carried.append(Carried(kept, Const(width, 0), operation.result))

    def start_row(self, item: Carried) -> None:
        """A carried value of the inner loop: its start is chosen at the end of a row, or else at the head of one."""
        if self.known_early(item.initial):
            self.rows.append(item)
            return
        running = Value(f"{item.value.name}.running", item.value.width)
        choice = (self.first, item.initial, running)
        self.operations.append(Operation(Opcode.SELECT, item.value, choice, self.inner.location))
        self.carried.append(Carried(running, Const(running.width, 0), item.following))

    def activity(self) -> Operand:
        """True if the iteration is one of the inner loop: 0 in the only one of a row that skips it."""
        enter = self.inner.enter
        if isinstance(enter, Const) and enter == TRUE:
            return TRUE
        if not self.known_early(enter):
            return self.choice(self.first, enter, TRUE)
        active = Value(f"{self.outer.label}.inside", 1)
        self.rows.append(Carried(active, enter, TRUE))
        return active

    def end_row(self, last: Operand) -> None:
        """What follows the carried values, within a row and at its end."""
        for item in self.rows:
            start, next_start = self.copied(self.first_row, item.initial), self.copied(self.next_row, item.initial)
            self.carried.append(Carried(item.value, start, self.choice(last, next_start, item.following)))
        for item in self.outer.carried:
            following = self.choice(last, self.mapped(item.following), item.value)
            self.carried.append(replace(item, following=following))
        if isinstance(self.first, Value):
            self.carried.append(Carried(self.first, TRUE, last))

    # ---- operands ----

    def known_early(self, operand: Operand) -> bool:
        """True if a value at the start of a row follows from carried values of the outer loop alone."""
        return all(op.opcode not in PREDICATED for op in cone_of(operand, self.definitions))

    def copied(self, copy: Copy, operand: Operand) -> Operand:
        """A value at the start of a row: of the first one, or of the next one."""
        for operation in cone_of(operand, self.definitions):
            if operation.result is not None and operation.result.name not in copy.replaced:
                copy.add(operation)
        return copy.operand(operand)

    def mapped(self, operand: Operand) -> Operand:
        """A result of the inner loop as its source."""
        return self.handed_on.get(operand.name, operand) if isinstance(operand, Value) else operand

    def renamed(self, operation: Operation) -> Operation:
        operands = tuple(self.mapped(operand) for operand in operation.operands)
        return replace(operation, operands=operands, predicate=self.mapped(operation.predicate))

    def add(self, operation: Operation, condition: Operand) -> None:
        """Append the operation, with its effect under a condition."""
        if operation.opcode in PREDICATED:
            operation = replace(operation, predicate=self.both(operation.predicate, condition))
        self.operations.append(operation)


def product(rows: TripCount | None, trips: TripCount | None) -> TripCount | None:
    """Iterations of the flattened loop."""
    if rows is None or trips is None:
        return None
    return TripCount(rows.least * max(trips.least, 1), rows.most * max(trips.most, 1), rows.exact and trips.exact)
