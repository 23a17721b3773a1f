"""Model tensors to the drive's binary16, a power of two per head where it would not fit (docs/arithmetic.md)."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive.errors import RangeError
from kvdrive.kvcache.half import LARGEST

HEADROOM = 8  # later tokens may be so many times larger than the largest of the first ones
Exponents = NDArray[np.int64]
Halves = NDArray[np.float16]


def exponents_of(tensor: torch.Tensor, what: str, headroom: int = 1) -> Exponents:
    """[batch, heads, tokens, d] -> [batch, heads]: 0 where the head fits binary16, else the smallest power that helps.

    Room is kept for values up to `headroom` times those that are there. Raises RangeError for Inf and NaN; `what` names
    the tensor.
    """
    largest = tensor.detach().abs().amax((2, 3)).double().cpu().numpy()
    if not np.isfinite(largest).all():
        raise RangeError(f"{what} holds Inf or NaN: the model's own numbers overflow, try another precision")
    mantissa, exponent = np.frexp(largest * headroom / LARGEST)
    needed: Exponents = np.maximum(exponent - (mantissa == 0.5), 0).astype(np.int64)
    return needed


def scaled_halves(tensor: torch.Tensor, exponents: Exponents) -> tuple[Halves, int]:
    """fl16(x * 2^-e), [batch, heads, tokens, d], and how many values that were not zero became zero.

    Precondition: `exponents` [batch, heads] are at least those of the tensor.
    """
    tensor = tensor.detach()
    scaled = tensor
    if exponents.any():
        factors = torch.from_numpy(np.exp2(-exponents.astype(np.float64)))[..., None, None].to(tensor.device)
        scaled = tensor.double() * factors
    half = scaled.to(torch.float16)
    lost = 0
    if half.dtype != tensor.dtype or exponents.any():
        lost = int(torch.count_nonzero(tensor)) - int(torch.count_nonzero(half))
    return half.cpu().contiguous().numpy(), lost


class HeadScale:
    """The exponents of K or of V of one layer, chosen from the first tokens of a batch with room for larger ones."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.exponents: Exponents | None = None
        self.lost = 0  # values that underflowed to zero

    def convert(self, tensor: torch.Tensor) -> Halves:
        """The halves of [batch, heads, tokens, d]. Raises RangeError where a later value outgrows its head's scale."""
        wanted = exponents_of(tensor, self.what)
        if self.exponents is None:
            self.exponents = exponents_of(tensor, self.what, HEADROOM)
        elif (wanted > self.exponents).any():
            row, head = np.argwhere(wanted > self.exponents)[0]
            fits = math.ldexp(LARGEST, int(self.exponents[row, head]))
            raise RangeError(
                f"{self.what}, KV head {head}, outgrew {fits:g}, what its first tokens asked for: "
                "put more of the text into the prompt"
            )
        halves, lost = scaled_halves(tensor, self.exponents)
        self.lost += lost
        return halves

    def rearrange(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was."""
        if self.exponents is not None:
            self.exponents = self.exponents[rows]

    @property
    def heads_scaled(self) -> int:
        """Heads that do not fit binary16 as they are, over all rows."""
        return 0 if self.exponents is None else int(np.count_nonzero(self.exponents))
