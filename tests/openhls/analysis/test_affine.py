# SPDX-License-Identifier: Apache-2.0
"""Collisions between iterations, against trying all of them."""

import random

from openhls.analysis.affine import Affine, affine_index, first_collision, may_meet, strides
from openhls.ir import Carried, Const, Opcode, Operation, Value

SEED = 5


def test_the_first_collision_is_the_one_found_by_trying() -> None:
    rng = random.Random(SEED)
    for _ in range(2000):
        bits = rng.randint(1, 6)
        modulus = 1 << bits
        stride, factor = rng.randrange(modulus), rng.randrange(modulus)
        a, b = (Affine(bits, rng.randrange(modulus), (("i", factor),) if factor else ()) for _ in range(2))
        tried = [d for d in range(1, modulus + 1) if (a.constant - b.constant - factor * stride * d) % modulus == 0]
        expected = tried[0] if tried else None
        assert first_collision(a, b, {"i": stride}, set()) == expected, (a, b, stride)


def test_values_that_change_otherwise_collide_at_once() -> None:
    a = Affine(4, 0, (("x", 1),))
    assert first_collision(a, a, {}, {"x"}) == 1
    assert first_collision(a, a, {}, set()) == 1  # the same element every time
    assert first_collision(a, Affine(4, 1, (("x", 1),)), {}, set()) is None


def test_within_an_iteration_only_equal_indices_meet() -> None:
    assert not may_meet(Affine(4, 1, (("i", 1),)), Affine(4, 2, (("i", 1),)))
    assert may_meet(Affine(4, 1, (("i", 1),)), Affine(4, 1, (("j", 1),)))


def test_indices_see_through_extensions_above_their_bits() -> None:
    i, narrow = Value("i", 32), Value("n", 3)
    wide, sum_ = Value("w", 64), Value("s", 64)
    definitions = {
        "w": Operation(Opcode.SEXT, wide, (i,)),
        "s": Operation(Opcode.ADD, sum_, (wide, Const(64, (1 << 64) - 1))),
        "z": Operation(Opcode.ZEXT, Value("z", 32), (narrow,)),
    }
    assert affine_index(sum_, 10, definitions) == Affine(10, 1023, (("i", 1),))
    assert affine_index(Value("z", 32), 10, definitions) == Affine(10, 0, (("z", 1),))  # three bits wrap earlier
    assert affine_index(Value("z", 32), 3, definitions) == Affine(3, 0, (("n", 1),))


def test_strides_are_those_of_counters() -> None:
    i, j, k = Value("i", 32), Value("j", 32), Value("k", 2)
    definitions = {
        "i2": Operation(Opcode.SUB, Value("i2", 32), (i, Const(32, 3))),
        "j2": Operation(Opcode.MUL, Value("j2", 32), (j, Const(32, 3))),
        "k2": Operation(Opcode.ADD, Value("k2", 2), (k, Const(2, 1))),
    }
    carried = tuple(Carried(value, Const(value.width, 0), Value(f"{value.name}2", value.width)) for value in (i, j, k))
    assert strides(carried, 4, definitions) == {"i": 13}
