# SPDX-License-Identifier: Apache-2.0
"""Known bits and ranges of every value of a process, for all inputs.

Loops are solved by going round until nothing is new, with bounds that keep moving put at likely ends (`widen`), and
then by going round twice more from what was found, which sharpens it again. A bound comes from the condition that lets
a loop go on, never from LOOP_TRIPCOUNT. What does not depend on what is new is not worked out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from openhls.ir import (
    COMPARISONS,
    TRUE,
    Block,
    Call,
    Carried,
    Const,
    Dataflow,
    Loop,
    Opcode,
    Operand,
    Operation,
    Process,
    Region,
    Value,
    calls_of,
    definitions_of,
    loops_of,
    operations_of,
    signed,
    walk,
)
from openhls.passes.narrowing.assume import Assumption, Reach
from openhls.passes.narrowing.facts import Fact, anything, close, exactly, join, meet, widen
from openhls.passes.narrowing.transfer import result_fact

EXACT_ROUNDS = 2  # before bounds that move are widened
STEPPED_ROUNDS = 8  # before they are given up
SHARPENINGS = 2


@dataclass
class Given:
    """What comes from outside a process: scalars, words of streams, elements of arrays, results of calls, by name.

    What is not in there can be anything.
    """

    scalars: dict[str, Fact] = field(default_factory=dict)
    words: dict[str, Fact] = field(default_factory=dict)
    elements: dict[str, Fact] = field(default_factory=dict)
    results: dict[str, Fact] = field(default_factory=dict)


class Ranges:
    """`facts` of all values of the process; `written` and `stored` of what it puts into streams and arrays."""

    def __init__(self, process: Process, given: Given) -> None:
        self.given = given
        self.facts: dict[str, Fact] = {}
        self.written: dict[str, Fact] = {}
        self.stored: dict[str, Fact] = {}
        self.arguments: list[tuple[Call, list[Fact]]] = []
        operations = list(operations_of(process.body))
        self.definitions = definitions_of(operations)
        self.reach = Reach(self.definitions)
        self.inputs = {id(op): frozenset(names_of(op.operands)) for op in operations}
        self.uses: dict[int, frozenset[str]] = {}  # of loops that are solved
        self.steps = steps_of(operations)
        self.found: dict[int, list[Fact]] = {}  # what loops carry, while those around them still grow
        self.assumptions: dict[tuple[Operand, bool], Assumption] = {}
        self.changed: set[str] = set()  # values whose facts, or those behind them, are new since they were last used
        for value in process.scalars:
            self.facts[value.name] = given.scalars.get(value.name) or anything(value.width)
        self.regions(process.body)
        self.collect(process.body, operations)

    def collect(self, body: tuple[Region, ...], operations: list[Operation]) -> None:
        """What leaves the process."""
        for operation in operations:
            if operation.opcode is Opcode.WRITE:
                put(self.written, operation.target, self.fact(operation.operands[0]))
            elif operation.opcode is Opcode.STORE:
                put(self.stored, operation.target, self.fact(operation.operands[1]))
        for call in calls_of(body):
            self.arguments.append((call, [self.fact(operand) for _, operand in call.scalars]))

    def fact(self, operand: Operand) -> Fact:
        return exactly(operand.width, operand.bits) if isinstance(operand, Const) else self.facts[operand.name]

    # ---- regions ----

    def regions(self, regions: tuple[Region, ...]) -> None:
        for region in regions:
            match region:
                case Block():
                    for operation in region.operations:
                        self.operation(operation)
                case Loop():
                    self.loop(region)
                case Dataflow():
                    self.dataflow(region)

    def dataflow(self, region: Dataflow) -> None:
        for call in region.calls:
            for _, value in call.results:
                self.facts[value.name] = self.given.results.get(value.name) or anything(value.width)

    def loop(self, loop: Loop) -> None:
        if id(loop) in self.uses and self.changed.isdisjoint(self.uses[id(loop)]):
            return
        self.uses[id(loop)] = self.used_by(loop)
        outside = self.assumed(loop.enter)
        initial = [self.fact(item.initial) for item in loop.carried]
        caps = [self.counter_bound(loop, item) for item in loop.carried]
        held = self.solve(loop, initial, caps)
        self.enter_body(loop, held)
        sources = [self.fact(result.source) for result in loop.results]
        self.facts |= outside
        self.assumptions.clear()
        for result, fact in zip(loop.results, sources, strict=True):
            self.set(result.value.name, fact)

    def set(self, name: str, fact: Fact) -> None:
        if self.facts.get(name) != fact:
            self.facts[name] = fact
            self.changed.add(name)

    def used_by(self, loop: Loop) -> frozenset[str]:
        """All that a loop looks at."""
        used = {name for op in operations_of(loop.body) for name in self.inputs[id(op)]}
        for each in (loop, *loops_of(loop.body)):
            ends = [item.initial for item in each.carried] + [item.following for item in each.carried]
            used.update(names_of([each.enter, each.again, *ends, *(result.source for result in each.results)]))
        return frozenset(used)

    def assumed(self, condition: Operand) -> dict[str, Fact]:
        """Take `condition` as true from here on; returns the facts to put back afterwards."""
        assumption = Assumption(self.definitions, self.fact)
        assumption.assume(condition, True)
        before = {name: self.facts[name] for name in assumption.facts}
        self.facts |= assumption.facts
        return before

    def solve(self, loop: Loop, initial: list[Fact], caps: list[Fact]) -> list[Fact]:
        """What the loop carries, in all of its iterations."""
        before, self.changed = self.changed, set(self.changed)
        held = [join(*pair) for pair in zip(initial, self.found.get(id(loop), initial), strict=True)]
        rounds = 0
        while True:
            following = self.next_round(loop, held, caps)
            before, self.changed = before | self.changed, set()
            grown = [join(*pair) for pair in zip(held, following, strict=True)]
            if grown == held:
                break
            rounds += 1
            if rounds > EXACT_ROUNDS:
                steps = self.steps if rounds <= STEPPED_ROUNDS else []
                grown = [widen(old, new, steps) for old, new in zip(held, grown, strict=True)]
            held = grown
        self.found[id(loop)] = held
        around, self.found = self.found, {}
        for _ in range(SHARPENINGS):
            sharper = [meet(old, join(*pair)) for old, *pair in zip(held, initial, following, strict=True)]
            if sharper == held:
                break
            held = sharper
            following = self.next_round(loop, held, caps)
            before, self.changed = before | self.changed, set()
        self.found, self.changed = around, before
        return held

    def next_round(self, loop: Loop, held: list[Fact], caps: list[Fact]) -> list[Fact]:
        """What the next iteration takes over."""
        self.enter_body(loop, held)
        assumption = Assumption(self.definitions, self.fact)
        assumption.assume(loop.again, True)
        following = [assumption.derived(item.following) for item in loop.carried]
        return [meet(fact, cap) for fact, cap in zip(following, caps, strict=True)]

    def enter_body(self, loop: Loop, held: list[Fact]) -> None:
        self.assumptions.clear()
        for item, fact in zip(loop.carried, held, strict=True):
            self.set(item.value.name, fact)
        self.regions(loop.body)

    def counter_bound(self, loop: Loop, item: Carried) -> Fact:
        """A value that counts by one until it meets a number from before the loop does not pass it."""
        width, half = item.value.width, 1 << (item.value.width - 1)
        step = self.definitions.get(item.following.name) if isinstance(item.following, Value) else None
        if step is None or step.opcode is not Opcode.ADD or step.operands[0] != item.value:
            return anything(width)
        start, by = self.fact(item.initial), step.operands[1]
        bound = anything(width)
        for limit, passed in self.limits(loop, item):
            end = self.fact(limit)
            if by == Const(width, 1):
                if start.high < end.low + passed:
                    bound = meet(bound, close(width, low=start.low, high=end.high - 1 + passed))
                if start.most < end.least + passed:
                    bound = meet(bound, close(width, least=start.least, most=end.most - 1 + passed))
            elif by == Const(width, 2 * half - 1):
                if end.high < start.low + passed:
                    bound = meet(bound, close(width, low=end.low + 1 - passed, high=start.high))
                if end.most < start.least + passed:
                    bound = meet(bound, close(width, least=end.least + 1 - passed, most=start.most))
        return bound

    def limits(self, loop: Loop, item: Carried) -> Iterator[tuple[Operand, int]]:
        """Values from before the loop that it ends at: those `item` must not become (0) or be (1) for it to go on."""
        pending, inside = [(loop.again, True)], {item.value.name for item in loop.carried}
        inside |= set(definitions_of(operations_of(loop.body)))
        inside |= results_of(loop.body)
        while pending:
            condition, holds = pending.pop()
            operation = self.definitions.get(condition.name) if isinstance(condition, Value) else None
            if operation is None:
                continue
            match operation.opcode:
                case Opcode.XOR if operation.operands[1] == TRUE:
                    pending.append((operation.operands[0], not holds))
                case Opcode.AND if holds:
                    pending += [(operand, True) for operand in operation.operands]
                case Opcode.NE | Opcode.EQ if holds is (operation.opcode is Opcode.NE):
                    a, b = operation.operands
                    for one, other in ((a, b), (b, a)):
                        fixed = isinstance(other, Const) or other.name not in inside
                        if fixed and one in (item.following, item.value):
                            yield other, int(one == item.value)

    # ---- operations ----

    def operation(self, operation: Operation) -> None:
        result, target = operation.result, operation.target
        if result is None or (result.name in self.facts and self.changed.isdisjoint(self.inputs[id(operation)])):
            return
        match operation.opcode:
            case Opcode.EMPTY | Opcode.FULL | Opcode.READ | Opcode.LOAD:
                source = {Opcode.READ: self.given.words, Opcode.LOAD: self.given.elements}.get(operation.opcode, {})
                self.facts[result.name] = source.get(target) or anything(result.width)
                return
            case Opcode.SELECT:
                fact = self.choice(operation)
            case opcode:
                operands = [self.fact(operand) for operand in operation.operands]
                fact = result_fact(opcode, result.width, operands, operation.low)
        self.facts[result.name] = fact
        self.changed.add(result.name)

    def choice(self, operation: Operation) -> Fact:
        """Each side as its condition has it."""
        condition, *sides = operation.operands
        operands = [self.fact(operand) for operand in operation.operands]
        if operands[0].constant is None:
            for number, holds in ((0, True), (1, False)):
                if self.reach.tells(condition, sides[number]):
                    operands[number + 1] = self.assumption(condition, holds).derived(sides[number])
        return result_fact(operation.opcode, operands[1].width, operands)

    def assumption(self, condition: Operand, holds: bool) -> Assumption:
        """What follows from a condition; many choices of one round share it."""
        key = condition, holds
        if key not in self.assumptions:
            self.assumptions[key] = Assumption(self.definitions, self.fact)
            self.assumptions[key].assume(condition, holds)
        return self.assumptions[key]


def names_of(operands: Iterable[Operand]) -> list[str]:
    return [operand.name for operand in operands if isinstance(operand, Value)]


def put(facts: dict[str, Fact], target: str, fact: Fact) -> None:
    facts[target] = join(facts[target], fact) if target in facts else fact


def results_of(regions: tuple[Region, ...]) -> set[str]:
    """Names that loops and calls in `regions` define."""
    names: set[str] = set()
    for region in walk(regions):
        if isinstance(region, Loop):
            names |= {item.value.name for item in region.carried} | {result.value.name for result in region.results}
        elif isinstance(region, Dataflow):
            names |= {value.name for call in region.calls for _, value in call.results}
    return names


def steps_of(operations: list[Operation]) -> list[int]:
    """Bounds that are likely to hold: the constants of comparisons, and the ends of common types."""
    steps = {0, -1}
    for operation in operations:
        if operation.opcode in COMPARISONS:
            for operand in operation.operands:
                if isinstance(operand, Const):
                    number = signed(operand.bits, operand.width)
                    steps |= {number - 1, number, number + 1, operand.bits - 1, operand.bits, operand.bits + 1}
    for bits in (8, 16, 32, 64):
        steps |= {(1 << bits) - 1, -(1 << bits)}
    return sorted(steps)
