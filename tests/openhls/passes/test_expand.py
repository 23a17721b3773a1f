# SPDX-License-Identifier: Apache-2.0
import random

import pytest

from openhls.evaluate import evaluate
from openhls.ir import Const, Opcode, Operation, Value
from openhls.passes.expand import expand_operations

SEED = 11
DIVISIONS = [Opcode.UDIV, Opcode.UREM, Opcode.SDIV, Opcode.SREM]
COUNTS = [Opcode.CLZ, Opcode.CTZ, Opcode.POPCOUNT]


def run(operations: tuple[Operation, ...], values: dict[str, int]) -> int:
    """The last result, each operation evaluated by its definition."""
    result = 0
    for operation in operations:
        bits = [op.bits if isinstance(op, Const) else values[op.name] for op in operation.operands]
        widths = [op.width for op in operation.operands]
        assert operation.result is not None
        result = evaluate(operation.opcode, operation.result.width, bits, widths, operation.low)
        values[operation.result.name] = result
    return result


def samples(width: int, count: int, rng: random.Random) -> list[int]:
    top = (1 << width) - 1
    corners = [0, 1, top, top >> 1, (top >> 1) + 1]
    return [value & top for value in corners] + [rng.getrandbits(width) >> rng.randrange(width) for _ in range(count)]


@pytest.mark.parametrize("width", [1, 2, 3, 8, 13, 32, 65])
@pytest.mark.parametrize("opcode", DIVISIONS)
def test_divisions_keep_their_meaning(opcode: Opcode, width: int) -> None:
    rng = random.Random(SEED)
    a, b, result = Value("a", width), Value("b", width), Value("r", width)
    lowered = expand_operations((Operation(opcode, result, (a, b)),))
    assert not {op.opcode for op in lowered} & set(DIVISIONS)
    assert lowered[-1].result == result
    for x in samples(width, 12, rng):
        for y in samples(width, 12, rng):
            assert run(lowered, {"a": x, "b": y}) == evaluate(opcode, width, [x, y], [width, width]), (x, y)


@pytest.mark.parametrize("divisor", [0, 1, 2, 3, 7, 16, 64, 100, 128, 255])
@pytest.mark.parametrize("opcode", DIVISIONS)
def test_a_constant_divisor_keeps_its_meaning(opcode: Opcode, divisor: int) -> None:
    a, result = Value("a", 8), Value("r", 8)
    lowered = expand_operations((Operation(opcode, result, (a, Const(8, divisor))),))
    for x in range(256):
        assert run(lowered, {"a": x}) == evaluate(opcode, 8, [x, divisor], [8, 8]), x


@pytest.mark.parametrize("opcode", [Opcode.UDIV, Opcode.UREM, Opcode.SDIV, Opcode.SREM])
def test_powers_of_two_divide_without_a_recurrence(opcode: Opcode) -> None:
    lowered = expand_operations((Operation(opcode, Value("r", 32), (Value("a", 32), Const(32, 16))),))
    assert len(lowered) <= 8


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("opcode", [Opcode.ULT, Opcode.ULE])
def test_comparisons_with_constants_keep_their_meaning(opcode: Opcode, swapped: bool) -> None:
    a, result = Value("a", 6), Value("r", 1)
    for constant in range(64):
        operands = (Const(6, constant), a) if swapped else (a, Const(6, constant))
        lowered = expand_operations((Operation(opcode, result, operands),))
        for x in range(64):
            bits = [constant, x] if swapped else [x, constant]
            assert run(lowered, {"a": x}) == evaluate(opcode, 1, bits, [6, 6]), (x, constant)


def test_low_bits_that_cannot_decide_are_left_out() -> None:
    a = Value("a", 514)
    lowered = expand_operations((Operation(Opcode.ULT, Value("r", 1), (Const(514, (3 << 512) - 1), a)),))
    assert lowered[-1].operands[0].width == 2


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 8, 33, 64, 89])
@pytest.mark.parametrize("opcode", COUNTS)
def test_counts_keep_their_meaning(opcode: Opcode, width: int) -> None:
    rng = random.Random(SEED)
    a, result = Value("a", width), Value("r", width)
    lowered = expand_operations((Operation(opcode, result, (a,)),))
    assert not {op.opcode for op in lowered} & set(COUNTS)
    values = range(1 << width) if width <= 8 else [*samples(width, 60, rng), *(1 << bit for bit in range(width))]
    for x in values:
        assert run(lowered, {"a": x}) == evaluate(opcode, width, [x], [width]), x
