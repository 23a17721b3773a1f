"""Feed-forward neurons (docs/arithmetic.md): y = down(activation * up(x)), sums exact, every product rounded once."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from golden import exp2, gemv, half, single, wide
from golden.abi import P_FRACTION_BITS, Status
from golden.half import Half

LOG2_E = 0x3FB8AA3B  # fl32(log2 e)
_ONE = 1 << P_FRACTION_BITS


class Activation(IntEnum):
    """Where activations come from, numbered as FfnActivation of abi/nvme.toml and as the kernel's argument."""

    GIVEN = 0
    RELU = 1
    SILU = 2


@dataclass(frozen=True)
class FfnResult:
    """`y`: binary32 patterns uint32 [tokens, hidden]. `sums`: int64 [tokens, hidden, 2], the low and high words of y
    before its rounding, LSB 2^-48. Both are zeros unless status is 0.
    """

    status: Status
    y: NDArray[np.uint32]
    sums: NDArray[np.int64]


def ffn(
    x: Half | None, rows: Half, activation: Activation = Activation.GIVEN, activations: Half | None = None
) -> FfnResult:
    """x [tokens, hidden], rows [neurons, matrices, hidden], activations [tokens, neurons] of GIVEN; all binary16.

    The matrices of a neuron are down; up and down; or gate, up and down. The first two need `activations`, the last
    one computes them. x is None for down alone. Raises ValueError for other shapes.
    """
    patterns = half.bits(rows)
    matrices = patterns.shape[1]
    given = activation == Activation.GIVEN
    if patterns.ndim != 3 or matrices not in (1, 2, 3) or given != (matrices < 3) or given == (activations is None):
        raise ValueError(f"rows {patterns.shape} do not go with {activation.name}")
    if (x is None) != (matrices == 1):
        raise ValueError("x is for rows with up, and only for them")
    inputs = [gemv.matrix(one, "an input") for one in (x, activations) if one is not None]
    h, finite = _hidden(x, patterns, activation, activations)
    if not (finite and all(half.is_finite(one).all() for one in (*inputs, patterns))):
        empty = (len(inputs[0]), patterns.shape[2])
        return FfnResult(Status.NON_FINITE, np.zeros(empty, np.uint32), np.zeros((*empty, 2), np.int64))
    sums = gemv.exact_dots(h, patterns[:, -1].T)
    return FfnResult(Status(0), single.from_wide(sums, gemv.DOT_EXPONENT), wide.pack(sums))


def silu(gate: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """fl32(g * fl32(1 / (1 + e^-g))) of finite binary32 patterns, the power of e as in softmax."""
    magnitude = gate & np.uint32(~single.SIGN & 0xFFFFFFFF)
    exponent = single.to_score(single.mul(magnitude, np.full_like(gate, LOG2_E))).astype(np.int64)
    p = exp2.probability(-exponent).astype(np.int64)
    numerator = np.where(gate >> 31 == 1, p, _ONE)
    sigma = single.ratio_to_single(wide.from_int64(numerator), (p + _ONE).astype(np.uint64), 0)
    return single.mul(gate, sigma)


def _hidden(
    x: Half | None, rows: NDArray[np.uint16], activation: Activation, activations: Half | None
) -> tuple[NDArray[np.uint16], bool]:
    """h [tokens, neurons] binary16, and True if all of them are finite."""
    if activations is not None and x is None:
        return half.bits(activations), True
    assert x is not None
    projected = [gemv.dots(half.bits(x), rows[:, i]) for i in range(rows.shape[1] - 1)]
    if activations is not None:
        a = half.to_float32_bits(activations)
    elif activation == Activation.RELU:
        a = np.where(projected[0] >> 31 == 1, np.uint32(0), projected[0])
    else:
        a = silu(projected[0])
    h = half.from_float32_bits(single.mul(a, projected[-1]))
    return h, bool(half.is_finite(h).all())
