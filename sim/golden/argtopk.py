"""The k largest of n keys; among equal keys the lowest index wins."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import bitmap as bitmaps
from golden import half, single
from golden.abi import MAX_TOKENS, MAX_TOP_K, KeyType, Status


@dataclass(frozen=True)
class ArgtopkResult:
    """`indices` uint32 [k] ascending, `bitmap` uint8 [64 * ceil(n / 512)]; both empty unless status is 0."""

    status: Status
    indices: NDArray[np.uint32]
    bitmap: NDArray[np.uint8]


def argtopk(keys: NDArray[Any], k: int, key_type: KeyType = KeyType.BINARY32) -> ArgtopkResult:
    """The k largest of `keys` [n]: binary32 (uint32 or float32), or binary16 magnitudes (uint16 or float16).

    1 <= n <= MAX_TOKENS (BAD_LENGTH), 1 <= k <= min(n, MAX_TOP_K) (BAD_K), no Inf or NaN (NON_FINITE).
    """
    order, finite = _order(keys, key_type)
    n = order.size
    status = Status(0)
    if not 1 <= n <= MAX_TOKENS:
        status |= Status.BAD_LENGTH
    if not 1 <= k <= min(n, MAX_TOP_K):
        status |= Status.BAD_K
    if status == 0 and not finite:
        status = Status.NON_FINITE
    if status:
        return ArgtopkResult(status, np.zeros(0, np.uint32), np.zeros(0, np.uint8))
    indices = np.sort(np.argsort(-order, kind="stable")[:k]).astype(np.uint32)
    return ArgtopkResult(status, indices, bitmaps.from_indices(indices, n))


def _order(keys: NDArray[Any], key_type: KeyType) -> tuple[NDArray[np.int64], bool]:
    """Integers in the order of the keys, with -0 equal to +0; and True if all keys are finite."""
    if np.ndim(keys) != 1:
        raise ValueError("keys must be one-dimensional")
    if key_type == KeyType.MAGNITUDE16:
        magnitude = half.bits(keys).astype(np.int64) & 0x7FFF
        return magnitude, bool(half.is_finite(keys).all())
    code = single.patterns(keys).astype(np.int64)
    magnitude = code & 0x7FFFFFFF
    return np.where(code >> 31 == 1, -magnitude, magnitude), bool(single.is_finite(keys).all())
