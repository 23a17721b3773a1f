# SPDX-License-Identifier: Apache-2.0
"""Simplification changes no value: random expressions, built twice, with and without constants known."""

from __future__ import annotations

import random

import pytest

from openhls.evaluate import evaluate
from openhls.frontend.boolean import FALSE, TRUE, Conditions
from openhls.frontend.simplifier import Simplifier
from openhls.ir import BINARY, COMPARISONS, Const, Opcode, Operand, Operation, Value
from openhls.names import Names

SAME_WIDTH = sorted(BINARY, key=lambda opcode: opcode.value)
ORDERED = sorted(COMPARISONS, key=lambda opcode: opcode.value)


def run(operations: tuple[Operation, ...], values: dict[Value, int]) -> None:
    for operation in operations:
        assert operation.result is not None
        bits = [each.bits if isinstance(each, Const) else values[each] for each in operation.operands]
        widths = [each.width for each in operation.operands]
        values[operation.result] = evaluate(operation.opcode, operation.result.width, bits, widths, operation.low)


def random_constant(random_: random.Random, width: int) -> Const:
    mask = (1 << width) - 1
    kinds = [0, mask, 1, 1 << (width - 1), random_.getrandbits(width), mask >> random_.randrange(width)]
    return Const(width, random_.choice(kinds) & mask)


class Expression:
    """A random expression: what the builder makes of it beside its value."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = Simplifier(Names().fresh)
        self.inputs = [Value(self.builder.fresh("x"), self.random.randint(1, 24)) for _ in range(4)]
        self.known = {value: self.random.getrandbits(value.width) for value in self.inputs}
        self.pool: list[tuple[Operand, int]] = [(value, self.known[value]) for value in self.inputs]

    def pick(self, width: int = 0) -> tuple[Operand, int]:
        if width and self.random.random() < 0.3:
            constant = random_constant(self.random, width)
            return constant, constant.bits
        operand, bits = self.random.choice(self.pool)
        if not width or operand.width == width:
            return operand, bits
        if operand.width > width:
            low = self.random.randint(0, operand.width - width)
            return self.make(Opcode.EXTRACT, width, (operand, bits), low=low)
        opcode = self.random.choice([Opcode.ZEXT, Opcode.SEXT])
        return self.make(opcode, width, (operand, bits))

    def make(self, opcode: Opcode, width: int, *parts: tuple[Operand, int], low: int = 0) -> tuple[Operand, int]:
        operands = [operand for operand, _ in parts]
        expected = evaluate(opcode, width, [bits for _, bits in parts], [each.width for each in operands], low)
        return self.builder.make(opcode, width, *operands, low=low), expected

    def step(self) -> None:
        kind = self.random.randrange(4)
        width = self.random.randint(1, 24)
        if kind == 0:
            made = self.make(self.random.choice(SAME_WIDTH), width, self.pick(width), self.pick(width))
        elif kind == 1:
            made = self.make(self.random.choice(ORDERED), 1, self.pick(width), self.pick(width))
        elif kind == 2:
            made = self.make(Opcode.SELECT, width, self.pick(1), self.pick(width), self.pick(width))
        else:
            parts = [self.pick(), self.pick()]
            made = self.make(Opcode.CONCAT, sum(operand.width for operand, _ in parts), *parts)
        if made[0].width <= 64:
            self.pool.append(made)


@pytest.mark.parametrize("seed", range(200))
def test_simplified_expressions_keep_their_values(seed: int) -> None:
    expression = Expression(seed)
    for _ in range(40):
        expression.step()
    values = dict(expression.known)
    run(expression.builder.take(), values)
    for operand, expected in expression.pool:
        assert (operand.bits if isinstance(operand, Const) else values[operand]) == expected


@pytest.mark.parametrize("seed", range(50))
def test_conditions_keep_their_values(seed: int) -> None:
    random_ = random.Random(seed)
    conditions = Conditions()
    atoms = [Value(f"c{i}", 1) for i in range(5)]
    nodes = [(conditions.atom(atom), 1 << i) for i, atom in enumerate(atoms)]
    tables = [(node, sum(1 << row for row in range(32) if row & mask)) for node, mask in nodes]
    for _ in range(30):
        (a, table_a), (b, table_b) = random_.choice(tables), random_.choice(tables)
        everything = (1 << 32) - 1
        tables += [
            (conditions.both(a, b), table_a & table_b),
            (conditions.either(a, b), table_a | table_b),
            (conditions.negate(a), everything ^ table_a),
        ]
        restricted = conditions.restrict(a, b)
        table = next((table for node, table in tables if node == restricted), None)
        assert table is None or table & table_b == table_a & table_b
    by_table: dict[int, set[int]] = {}
    for node, table in tables:
        by_table.setdefault(table, set()).add(node)
    assert all(len(nodes) == 1 for nodes in by_table.values())
    assert by_table.get(0, {FALSE}) == {FALSE}
    assert by_table.get((1 << 32) - 1, {TRUE}) == {TRUE}
