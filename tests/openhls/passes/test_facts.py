# SPDX-License-Identifier: Apache-2.0
"""What is said of a result holds for every operand that fits what is said of the operands."""

import random
from itertools import islice, product

import pytest

from openhls.evaluate import evaluate
from openhls.ir import BINARY, COMPARISONS, COUNTS, Const, Opcode, Operation, Value
from openhls.passes.narrowing.assume import Assumption
from openhls.passes.narrowing.facts import Fact, anything, between, exactly, join, meet, signed_between, widen
from openhls.passes.narrowing.transfer import result_fact

WIRING = {Opcode.SELECT, Opcode.ZEXT, Opcode.SEXT, Opcode.EXTRACT, Opcode.CONCAT}
OPCODES = sorted(BINARY | COMPARISONS | COUNTS | WIRING, key=lambda opcode: opcode.value)


def members(fact: Fact) -> list[int]:
    return [bits for bits in range(1 << fact.width) if fact.has(bits)]


def random_fact(rng: random.Random, width: int) -> Fact:
    fact = exactly(width, rng.randrange(1 << width))
    for _ in range(rng.randrange(4)):
        fact = join(fact, exactly(width, rng.randrange(1 << width)))
    return fact


def random_shape(rng: random.Random, opcode: Opcode) -> tuple[int, list[int], int]:
    """Width of the result, widths of the operands, and `low`."""
    width = rng.randint(1, 5)
    if opcode in BINARY:
        return width, [width, width], 0
    if opcode in COMPARISONS:
        return 1, [width, width], 0
    if opcode in COUNTS:
        return width, [width], 0
    if opcode is Opcode.SELECT:
        return width, [1, width, width], 0
    if opcode in (Opcode.ZEXT, Opcode.SEXT):
        return width + rng.randint(1, 3), [width], 0
    if opcode is Opcode.EXTRACT:
        low = rng.randrange(width)
        return rng.randint(1, width - low), [width], low
    widths = [rng.randint(1, 3) for _ in range(rng.randint(2, 3))]
    return sum(widths), widths, 0


@pytest.mark.parametrize("opcode", OPCODES, ids=lambda opcode: opcode.value)
def test_results_are_within_their_facts(opcode: Opcode) -> None:
    rng = random.Random(opcode.value)
    for _ in range(300):
        width, widths, low = random_shape(rng, opcode)
        facts = [random_fact(rng, each) for each in widths]
        found = result_fact(opcode, width, facts, low)
        for bits in islice(product(*map(members, facts)), 200):
            assert found.has(evaluate(opcode, width, bits, widths, low)), (facts, bits, found)


def test_sets_are_joined_met_and_widened_without_loss() -> None:
    rng = random.Random(3)
    for _ in range(2000):
        width = rng.randint(1, 5)
        a, b = random_fact(rng, width), random_fact(rng, width)
        both, either = set(members(a)) & set(members(b)), set(members(a)) | set(members(b))
        assert either <= set(members(join(a, b)))
        assert not both or both <= set(members(meet(a, b)))
        assert either <= set(members(widen(a, join(a, b), [-9, -1, 0, 1, 3, 9])))


@pytest.mark.parametrize("opcode", sorted(COMPARISONS, key=lambda opcode: opcode.value), ids=lambda o: o.value)
def test_conditions_tell_about_their_operands(opcode: Opcode) -> None:
    rng = random.Random(opcode.value)
    for _ in range(400):
        width = rng.randint(1, 4)
        x, y, condition = Value("x", width), Value("y", width), Value("c", 1)
        facts = {"x": random_fact(rng, width), "y": random_fact(rng, width), "c": anything(1)}
        definitions = {"c": Operation(opcode, condition, (x, y))}
        assumption = Assumption(definitions, lambda operand, facts=facts: facts[operand.name])
        assumption.assume(condition, holds := rng.random() < 0.5)
        for a, b in product(members(facts["x"]), members(facts["y"])):
            if evaluate(opcode, 1, (a, b), (width, width)) == holds:
                assert assumption.fact(x).has(a)
                assert assumption.fact(y).has(b)


def test_bounds_are_sharp_where_it_matters() -> None:
    small = between(32, 0, 1000)
    assert result_fact(Opcode.ADD, 32, [small, small]).bits == 11
    assert result_fact(Opcode.SUB, 32, [small, small]).signed_bits == 11
    product_fact = result_fact(Opcode.MUL, 64, [signed_between(64, -(1 << 26), (1 << 26) - 1), between(64, 0, 131071)])
    assert product_fact.signed_bits == 44
    assert result_fact(Opcode.ASHR, 32, [anything(32), exactly(32, 12)]).signed_bits == 20
    assert result_fact(Opcode.AND, 32, [anything(32), exactly(32, 0xF0)]).zeros == 0xFFFFFF0F


def test_extensions_are_seen_through() -> None:
    x, wide, condition = Value("x", 8), Value("wide", 32), Value("c", 1)
    facts = {"x": anything(8), "wide": between(32, 0, 255), "c": anything(1)}
    definitions = {
        "wide": Operation(Opcode.ZEXT, wide, (x,)),
        "c": Operation(Opcode.ULT, condition, (wide, Const(32, 10))),
    }
    assumption = Assumption(definitions, lambda o: exactly(o.width, o.bits) if isinstance(o, Const) else facts[o.name])
    assumption.assume(condition, True)
    assert assumption.fact(x).high == 9
