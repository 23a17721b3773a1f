"""Model tensors to binary16: the golden model's rounding, and a guard instead of Inf."""

import numpy as np
import pytest
import torch

import golden.half
from kvdrive.errors import RangeError
from kvdrive.kvcache.scaling import to_half


def patterns(count):
    """float32 patterns over all exponents that binary16 can hold after rounding, ties and subnormals included."""
    rng = np.random.default_rng(17)
    codes = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    ties = rng.integers(0, 1 << 19, count, dtype=np.uint32) << 13 | 0x1000
    codes = np.concatenate([codes, ties])
    values = codes.view(np.float32)
    return codes[np.isfinite(values) & (np.abs(values) <= 65504)]


def test_rounding_is_the_golden_models():
    codes = patterns(200_000)
    half = to_half(torch.from_numpy(codes.view(np.float32)), "x")
    want = golden.half.from_float32_bits(codes)
    nonzero = want & 0x7FFF != 0  # the drive ignores the sign of a zero
    np.testing.assert_array_equal(half.view(np.uint16)[nonzero], want[nonzero])
    assert not half[~nonzero].any()
    subnormal = (want & 0x7C00 == 0) & nonzero
    assert subnormal.sum() > 1000


def test_bfloat16_is_exact_where_it_fits():
    values = torch.tensor([1.0, -3.0078125, 2.0**-24, 65280.0]).to(torch.bfloat16)
    np.testing.assert_array_equal(to_half(values, "x").astype(np.float32), values.float().numpy())


def test_strided_tensors_keep_their_order():
    tensor = torch.arange(24.0).reshape(2, 3, 4).transpose(1, 2)
    np.testing.assert_array_equal(to_half(tensor, "x"), tensor.numpy().astype(np.float16))


@pytest.mark.parametrize("value", [65504.1, -65520.0, 1e30, float("inf"), float("nan")])
def test_values_out_of_range_are_named(value):
    with pytest.raises(RangeError, match="V of layer 3 holds a value that binary16 cannot"):
        to_half(torch.tensor([1.0, value]), "V of layer 3")


def test_the_largest_value_passes():
    assert to_half(torch.tensor([-65504.0]), "x")[0] == -65504
