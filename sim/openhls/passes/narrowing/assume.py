# SPDX-License-Identifier: Apache-2.0
"""What a condition that holds, or does not, tells about the values that it was made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from openhls.ir import COMPARISONS, PREDICATED, TRUE, Const, Opcode, Operand, Operation, Value, signed
from openhls.passes.narrowing.facts import Fact, close, exactly, meet
from openhls.passes.narrowing.transfer import result_fact

DEEP = 8  # operations behind a condition
BEHIND = 2  # operations between a value and what is known under the condition
NEGATED = {
    Opcode.EQ: Opcode.NE,
    Opcode.NE: Opcode.EQ,
    Opcode.ULT: Opcode.ULE,
    Opcode.ULE: Opcode.ULT,
    Opcode.SLT: Opcode.SLE,
    Opcode.SLE: Opcode.SLT,
}
SYMMETRIC = (Opcode.EQ, Opcode.NE)


class Assumption:
    """Facts of values, by name, under a condition."""

    def __init__(self, definitions: Mapping[str, Operation], fact_of: Callable[[Operand], Fact]) -> None:
        self.definitions = definitions
        self.before = fact_of
        self.facts: dict[str, Fact] = {}

    def fact(self, operand: Operand) -> Fact:
        found = self.facts.get(operand.name) if isinstance(operand, Value) else None
        return found if found is not None else self.before(operand)

    def derived(self, operand: Operand, deep: int = BEHIND) -> Fact:
        """The fact of an operand, also from what is now known of the values it is made of."""
        fact = self.fact(operand)
        operation = self.definitions.get(operand.name) if isinstance(operand, Value) else None
        if operation is None or deep == 0 or fact.constant is not None or operation.opcode in PREDICATED:
            return fact
        operands = [self.derived(each, deep - 1) for each in operation.operands]
        if operands == [self.before(each) for each in operation.operands]:
            return fact
        return meet(fact, result_fact(operation.opcode, fact.width, operands, operation.low))

    def assume(self, condition: Operand, holds: bool, deep: int = DEEP) -> None:
        if isinstance(condition, Const):
            return
        self.learn(condition, exactly(1, int(holds)), deep)
        operation = self.definitions.get(condition.name)
        if operation is None or deep == 0:
            return
        operands = operation.operands
        match operation.opcode:
            case Opcode.XOR if operands[1] == TRUE:
                self.assume(operands[0], not holds, deep - 1)
            case Opcode.AND | Opcode.OR if holds is (operation.opcode is Opcode.AND):
                self.assume(operands[0], holds, deep - 1)
                self.assume(operands[1], holds, deep - 1)
            case Opcode.EXTRACT if operation.low == operands[0].width - 1:
                half = 1 << operation.low
                bounds = {"least": -half, "most": -1} if holds else {"least": 0, "most": half - 1}
                self.learn(operands[0], close(operands[0].width, **bounds), deep - 1)
            case opcode if opcode in COMPARISONS:
                a, b = operands
                if not holds:
                    opcode = NEGATED[opcode]
                    a, b = (a, b) if opcode in SYMMETRIC else (b, a)
                self.compared(opcode, a, b, deep - 1)

    def compared(self, opcode: Opcode, a: Operand, b: Operand, deep: int) -> None:
        """a `opcode` b holds."""
        x, y, width = self.fact(a), self.fact(b), a.width
        strict = int(opcode in (Opcode.ULT, Opcode.SLT))
        if opcode is Opcode.EQ:
            both = meet(x, y)
            self.learn(a, both, deep)
            self.learn(b, both, deep)
        elif opcode is Opcode.NE:
            self.learn(a, without(x, y.constant), deep)
            self.learn(b, without(y, x.constant), deep)
        elif opcode in (Opcode.ULT, Opcode.ULE):
            if y.high >= strict and x.low + strict < 1 << width:
                self.learn(a, close(width, high=y.high - strict), deep)
                self.learn(b, close(width, low=x.low + strict), deep)
        elif y.most - strict >= -(1 << (width - 1)) and x.least + strict < 1 << (width - 1):
            self.learn(a, close(width, most=y.most - strict), deep)
            self.learn(b, close(width, least=x.least + strict), deep)

    def learn(self, operand: Operand, fact: Fact, deep: int) -> None:
        """`operand` is in `fact`; so is what it only extends, as far as the bits go."""
        if isinstance(operand, Const):
            return
        fact = meet(self.fact(operand), fact)
        self.facts[operand.name] = fact
        operation = self.definitions.get(operand.name)
        if operation is None or deep == 0 or operation.opcode not in (Opcode.ZEXT, Opcode.SEXT):
            return
        (source,) = operation.operands
        width = source.width
        if operation.opcode is Opcode.ZEXT and fact.high < 1 << width:
            self.learn(source, close(width, low=fact.low, high=fact.high), deep - 1)
        elif operation.opcode is Opcode.SEXT:
            self.learn(source, close(width, least=fact.least, most=fact.most), deep - 1)


class Reach:
    """Which values an assumption can tell something about, from the way they are computed alone."""

    def __init__(self, definitions: Mapping[str, Operation]) -> None:
        self.definitions = definitions
        self.cones: dict[tuple[str, int], frozenset[str]] = {}

    def cone(self, operand: Operand, deep: int) -> frozenset[str]:
        """The names of `operand` and of what is behind it."""
        if isinstance(operand, Const):
            return frozenset()
        key = operand.name, deep
        if key not in self.cones:
            operation = self.definitions.get(operand.name)
            behind = operation.operands if operation is not None and deep else ()
            self.cones[key] = frozenset({operand.name}).union(*(self.cone(each, deep - 1) for each in behind))
        return self.cones[key]

    def tells(self, condition: Operand, operand: Operand) -> bool:
        return not self.cone(condition, DEEP).isdisjoint(self.cone(operand, BEHIND))


def without(fact: Fact, bits: int | None) -> Fact:
    """`fact` but for one pattern, if that is one of its bounds."""
    if bits is None or fact.low == fact.high:
        return fact
    number = signed(bits, fact.width)
    return close(
        fact.width,
        fact.zeros,
        fact.ones,
        fact.low + (fact.low == bits),
        fact.high - (fact.high == bits),
        fact.least + (fact.least == number),
        fact.most - (fact.most == number),
    )
