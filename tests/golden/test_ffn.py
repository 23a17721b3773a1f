"""Feed-forward neurons of the golden model: against rational arithmetic, and within bounds of float64."""

from fractions import Fraction

import numpy as np
import pytest

import golden
from golden import Activation
from golden.abi import Status


def exact(rows: np.ndarray, x: np.ndarray) -> list[Fraction]:
    """Dot products of rows [n, d] with x [d], without rounding."""
    return [
        sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, x, strict=True)), Fraction()) for row in rows
    ]


def single(value: Fraction) -> np.float32:
    """Nearest binary32: the quotient of two integers is rounded to odd on the way through binary64."""
    near = np.float64(float(value))
    error = Fraction(float(near)) - value
    if error != 0 and int(near.view(np.int64)) & 1 == 0:
        near = np.nextafter(near, -np.inf if error > 0 else np.inf)
    return np.float32(near)


def halves(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float16)


@pytest.mark.parametrize("matrices", [1, 2])
def test_given_activations_are_multiplied_and_summed_exactly(matrices: int) -> None:
    rng = np.random.default_rng(matrices)
    x, rows, a = halves(rng, 1, 24), halves(rng, 9, matrices, 24), halves(rng, 1, 9)
    found = golden.ffn(x if matrices == 2 else None, rows, Activation.GIVEN, a)
    h = a[0]
    if matrices == 2:
        up = np.array([single(value) for value in exact(rows[:, 0], x[0])], np.float32)
        h = (a[0].astype(np.float32) * up).astype(np.float16)
    expected = [single(value) for value in exact(rows[:, -1].T, h)]
    np.testing.assert_array_equal(found.y[0].view(np.float32), expected)
    assert found.status == 0


@pytest.mark.parametrize(("activation", "name"), [(Activation.RELU, "relu"), (Activation.SILU, "silu")])
def test_a_gated_layer_is_near_float64(activation: Activation, name: str) -> None:
    rng = np.random.default_rng(1)
    x, rows = halves(rng, 3, 64), halves(rng, 40, 3, 64, scale=0.2)
    found = golden.ffn(x, rows, activation).y.view(np.float32)
    wide, gate_up_down = x.astype(np.float64), rows.astype(np.float64)
    gate, up = wide @ gate_up_down[:, 0].T, wide @ gate_up_down[:, 1].T
    a = np.maximum(gate, 0) if name == "relu" else gate / (1 + np.exp(-gate))
    expected = (a * up) @ gate_up_down[:, 2]
    # h is rounded to 11 significant bits: the error of y is at most 2^-11 of the sum of magnitudes
    bound = 2.0**-11 * (np.abs(a * up) @ np.abs(gate_up_down[:, 2]))
    assert (np.abs(found - expected) <= bound + 1e-6).all()


def test_silu_is_near_its_function_over_all_magnitudes() -> None:
    gate = np.concatenate([np.linspace(-40, 40, 4001), 2.0 ** np.arange(-40.0, 40.0), [0.0]]).astype(np.float32)
    found = golden.silu(gate.view(np.uint32)).view(np.float32).astype(np.float64)
    z = gate.astype(np.float64)
    expected = z / (1 + np.exp(-z))
    # p has 20 bits and no unit below 2^-31
    assert (np.abs(found - expected) <= np.abs(expected) * 2.0**-18 + np.abs(z) * 2.0**-31).all()
    assert found[-1] == 0


def test_neurons_in_any_order_and_number_give_the_same_bits() -> None:
    rng = np.random.default_rng(2)
    x, rows = halves(rng, 2, 32), halves(rng, 50, 3, 32, scale=0.3)
    whole = golden.ffn(x, rows, Activation.SILU)
    order = rng.permutation(50)
    np.testing.assert_array_equal(golden.ffn(x, rows[order], Activation.SILU).y, whole.y)
    parts = [golden.wide.unpack(golden.ffn(x, part, Activation.SILU).sums) for part in np.array_split(rows, 7)]
    total = parts[0]
    for part in parts[1:]:
        total = golden.wide.add(total, part)
    np.testing.assert_array_equal(golden.wide.pack(total), whole.sums)


@pytest.mark.parametrize("place", ["x", "gate", "up", "down", "overflow"])
def test_infinities_and_overflow_give_no_result(place: str) -> None:
    rng = np.random.default_rng(3)
    x, rows = halves(rng, 2, 16), halves(rng, 5, 3, 16)
    if place == "x":
        x[1, 3] = np.inf
    elif place == "overflow":
        x[0], rows[2, :2] = 20, 20
    else:
        rows[4, ["gate", "up", "down"].index(place), 7] = np.nan
    found = golden.ffn(x, rows, Activation.RELU)
    assert found.status == Status.NON_FINITE
    assert not found.y.any()
    assert not found.sums.any()


def test_shapes_that_do_not_go_together_are_refused() -> None:
    rows, x, a = np.ones((2, 3, 8), np.float16), np.ones((1, 8), np.float16), np.ones((1, 2), np.float16)
    for wrong in (
        (x, rows, Activation.GIVEN, a),
        (x, rows[:, :2], Activation.RELU, None),
        (x, rows[:, :2], Activation.GIVEN, None),
        (None, rows, Activation.SILU, None),
        (x, rows[:, :1], Activation.GIVEN, a),
    ):
        with pytest.raises(ValueError, match=r"do not go with|x is for rows"):
            golden.ffn(*wrong)
