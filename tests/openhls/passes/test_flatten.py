# SPDX-License-Identifier: Apache-2.0
"""Random nests mean the same before and after, for the interpreter; some shapes one by one."""

import random
from dataclasses import dataclass, field, replace

import pytest
from ir_interpreter import Outcome, interpret

from openhls.ir import (
    TRUE,
    Array,
    Block,
    Carried,
    Const,
    Direction,
    Loop,
    Opcode,
    Operand,
    Operation,
    Pipeline,
    Process,
    Program,
    Region,
    Result,
    Stream,
    TripCount,
    Value,
    loops_of,
)
from openhls.passes.flatten import flatten, flatten_process
from openhls.verify import verify

WIDTH = 8
STREAMS = (
    Stream("a", WIDTH, Direction.READ),
    Stream("b", WIDTH, Direction.READ),
    Stream("x", WIDTH, Direction.WRITE),
    Stream("y", WIDTH, Direction.WRITE),
)
ARRAY = Array("memory", WIDTH, 8)
FREE = Pipeline()
PURE = (Opcode.ADD, Opcode.SUB, Opcode.XOR, Opcode.MUL, Opcode.AND)


@dataclass
class Nests:
    """Writes processes: loops two or three deep with blocks around the inner ones, which some rows skip."""

    rng: random.Random
    count: int = 0
    visible: list[Value] = field(default_factory=list)

    def fresh(self, stem: str, width: int = WIDTH) -> Value:
        self.count += 1
        return Value(f"{stem}{self.count}", width)

    def operand(self) -> Operand:
        if self.visible and self.rng.random() < 0.8:
            return self.rng.choice(self.visible[-8:] + self.visible[:3])
        return Const(WIDTH, self.rng.randrange(256))

    def bit(self, operations: list[Operation]) -> Operand:
        """A condition on what is visible, or TRUE."""
        if self.rng.random() < 0.5:
            return TRUE
        value = self.fresh("when", 1)
        operations.append(Operation(Opcode.ULT, value, (self.operand(), self.operand())))
        return value

    def block(self, label: str, size: int) -> Block:
        operations: list[Operation] = []
        for _ in range(self.rng.randint(0, size)):
            self.operation(operations)
        return Block(label, tuple(operations))

    def operation(self, operations: list[Operation]) -> None:
        kind = self.rng.randrange(10)
        value = self.fresh("v")
        if kind < 4:
            operations.append(Operation(self.rng.choice(PURE), value, (self.operand(), self.operand())))
        elif kind < 6:
            self.guarded(operations, value, Opcode.READ, (), self.rng.choice("ab"))
        elif kind < 8:
            when = self.bit(operations)
            operations.append(
                Operation(Opcode.WRITE, None, (self.operand(),), predicate=when, target=self.rng.choice("xy"))
            )
            return
        else:
            index = self.fresh("index", 3)
            operations.append(Operation(Opcode.EXTRACT, index, (self.operand(),)))
            if kind == 8:
                self.guarded(operations, value, Opcode.LOAD, (index,), "memory")
            else:
                when = self.bit(operations)
                operations.append(
                    Operation(Opcode.STORE, None, (index, self.operand()), predicate=when, target="memory")
                )
                return
        self.visible.append(value)

    def guarded(
        self, operations: list[Operation], value: Value, opcode: Opcode, operands: tuple[Operand, ...], target: str
    ) -> None:
        """An access that may not happen, and 0 where it did not."""
        when, raw = self.bit(operations), self.fresh("raw")
        operations.append(Operation(opcode, raw, operands, predicate=when, target=target))
        operations.append(Operation(Opcode.SELECT, value, (when, raw, Const(WIDTH, 0))))

    def loop(self, depth: int) -> tuple[list[Region], Loop]:
        """A counted loop, sometimes with an early exit; what comes before it decides whether it is entered."""
        rng = self.rng
        label = f"loop{self.count}"
        before: list[Operation] = []
        enter = self.bit(before)
        outside = list(self.visible)
        counter, total = self.fresh("i"), self.fresh("sum")
        start = self.operand() if rng.random() < 0.3 else Const(WIDTH, 0)
        starts = (start, self.operand())
        self.visible += [counter, total]
        if depth == 0:
            block = self.block(f"{label}_body", 6)
            body: list[Region] = [block]
        else:
            first = [self.block(f"{label}_head", 4)] if rng.random() < 0.7 else []
            entering, inner = self.loop(depth - 1)
            body = [*first, *entering, inner]
        final: list[Operation] = []
        if depth and rng.random() < 0.7:
            final += self.block(f"{label}_rear", 4).operations
        following, limit, again = self.fresh("next"), Const(WIDTH, rng.randint(1, 4)), self.fresh("again", 1)
        stepped, low = self.fresh("stepped", 2), self.fresh("low", 2)
        final += [
            Operation(Opcode.ADD, following, (counter, Const(WIDTH, 1))),
            Operation(Opcode.EXTRACT, low, (following,)),
            Operation(Opcode.EXTRACT, stepped, (limit,)),
            Operation(Opcode.NE, again, (low, stepped)),
        ]
        added = self.fresh("added")
        final.append(Operation(Opcode.ADD, added, (total, self.operand())))
        on = again
        if rng.random() < 0.3:
            stays, on = self.fresh("stays", 1), self.fresh("on", 1)
            final.append(Operation(Opcode.NE, stays, (self.operand(), Const(WIDTH, rng.randrange(4)))))
            final.append(Operation(Opcode.AND, on, (again, stays)))
        if depth == 0:
            body = [replace(block, operations=(*block.operations, *final))]
        else:
            body.append(Block(f"{label}_end", tuple(final)))
        sources = (rng.choice([added, total]), rng.choice([counter, following]))
        results = tuple(Result(self.fresh("r"), source) for source in sources)
        carried = (Carried(counter, starts[0], following), Carried(total, starts[1], added))
        self.visible = outside
        regions: list[Region] = [Block(f"{label}_enter", tuple(before))] if before else []
        loop = Loop(label, carried, tuple(body), on, results, enter, trip_count=TripCount(1, 4))
        for result in results if enter == TRUE else ():
            self.visible.append(result.value)
        return regions, loop

    def process(self, depth: int) -> Process:
        scalars = (self.fresh("s"), self.fresh("s"))
        self.visible += scalars
        clear = tuple(
            Operation(Opcode.STORE, None, (Const(3, i), self.operand()), target="memory") for i in range(ARRAY.length)
        )
        entering, loop = self.loop(depth)
        final = Block("final", (Operation(Opcode.WRITE, None, (self.operand(),), target="x"),))
        body: tuple[Region, ...] = (Block("clear", clear), *entering, loop, final)
        return Process("top", scalars, STREAMS, (ARRAY,), body)


def outcome(process: Process, seed: int) -> Outcome:
    rng = random.Random(seed)
    words = {name: [rng.randrange(256) for _ in range(4000)] for name in "ab"}
    scalars = {value.name: rng.randrange(256) for value in process.scalars}
    program = Program("top", {"top": process}, ("a", "b", "x", "y"))
    verify(program)
    return interpret(program, scalars, words, seed)


def same(process: Process, flat: Process, seed: int) -> bool:
    a, b = outcome(process, seed), outcome(flat, seed)
    return (a.outputs, a.streams, a.unread) == (b.outputs, b.streams, b.unread)


@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 60), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_flattened_nest_means_the_same(depth: int, seeds: range) -> None:
    for seed in (1000 * depth + number for number in seeds):
        process = Nests(random.Random(seed)).process(depth)
        flat = flatten_process(process, lambda _: True)
        assert len(list(loops_of(flat.body))) == 1
        for inputs in range(2):
            assert same(process, flat, inputs), f"seed {seed}, inputs {inputs}"


def nest(inner: Pipeline = FREE, outer: Pipeline = FREE, more: tuple[Region, ...] = ()) -> Loop:
    """Three rows of four, and `more` behind each row."""

    def counted(name: str, body: tuple[Region, ...], trips: int, pipeline: Pipeline) -> Loop:
        counter, following, again = Value(f"{name}_i", 4), Value(f"{name}_next", 4), Value(f"{name}_again", 1)
        final = Block(
            f"{name}_end",
            (
                Operation(Opcode.ADD, following, (counter, Const(4, 1))),
                Operation(Opcode.NE, again, (following, Const(4, trips))),
            ),
        )
        carried = (Carried(counter, Const(4, 0), following),)
        trip_count = TripCount(trips, trips, exact=True)
        return Loop(name, carried, (*body, final), again, pipeline=pipeline, trip_count=trip_count)

    return counted("rows", (counted("columns", (), 4, inner), *more), 3, outer)


def test_the_loop_has_the_trips_and_the_pragmas_of_the_inner_one() -> None:
    flat = flatten(nest(Pipeline(interval=2)))
    assert flat is not None
    assert flat.loop.innermost
    assert (flat.loop.label, flat.loop.pipeline) == ("columns", Pipeline(interval=2))
    assert flat.loop.trip_count == TripCount(12, 12, exact=True)


@pytest.mark.parametrize(
    "loop",
    [
        nest(inner=Pipeline(off=True)),
        nest(outer=Pipeline(off=True)),
        nest(more=(replace(nest().body[0], label="again"),)),
        nest().body[0],
    ],
    ids=["inner one not pipelined", "outer one not pipelined", "two inner loops", "no inner loop"],
)
def test_other_loops_stay(loop: Loop) -> None:
    assert flatten(loop) is None


def test_a_nest_stays_where_the_judge_says_so() -> None:
    process = Process("top", (), (), (), (nest(),))
    assert flatten_process(process, lambda _: False) == process
