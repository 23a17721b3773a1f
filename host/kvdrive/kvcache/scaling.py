"""Model tensors to the drive's numbers. A head that does not fit is scaled by a power of two (docs/arithmetic.md).

K and V in e4m3 of a checkpoint that ships scales are divided by those instead.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive._native import largest_and_zeros
from kvdrive.errors import RangeError
from kvdrive.kvcache.arrivals import Rounded
from kvdrive.kvcache.shipped_scales import Scale
from kvdrive.nvme.rows import encoded, largest_number, rounded
from kvdrive.nvme.wire import RowFormat

LARGEST = 65504.0  # of binary16
HEADROOM = 8  # later tokens may be this many times larger than the largest of the first ones
_FEW = 1 << 14  # numbers for which a call of torch takes longer than the work in it
Exponents = NDArray[np.int64]
Factors = NDArray[np.float64]
Halves = NDArray[np.float16]


def to_half(tensor: torch.Tensor, what: str) -> Halves:
    """float32, bfloat16 or float16 -> binary16, one rounding to nearest even, subnormals kept; same shape.

    Raises RangeError when a magnitude exceeds 65504 or a value is Inf or NaN; `what` names the tensor.
    """
    if not bool((tensor.abs() <= LARGEST).all()):
        raise RangeError(
            f"{what} holds a value that binary16 cannot: largest magnitude {float(tensor.abs().max()):g}, limit 65504"
        )
    half: Halves = tensor.detach().to(torch.float16).cpu().contiguous().numpy()
    return half


def to_halves(tensor: torch.Tensor, what: str) -> tuple[Halves, Exponents | None]:
    """[batch, heads, tokens, d] -> fl16(x * 2^-e) and e [batch, heads]; None where every head fits binary16 as it is.

    Raises RangeError for Inf and NaN; `what` names the tensor.
    """
    found = _plain_halves(tensor, LARGEST)
    if found is not None:
        return found[0], None
    exponents = exponents_of(tensor, what)
    return scaled_halves(tensor, exponents)[0], exponents


def exponents_of(tensor: torch.Tensor, what: str, most: float = LARGEST) -> Exponents:
    """[batch, heads, tokens, d] -> [batch, heads]: the smallest e >= 0 with which no |x| * 2^-e is above `most`.

    Raises RangeError for Inf and NaN; `what` names the tensor.
    """
    largest = tensor.detach().abs().amax((2, 3)).double().cpu().numpy()
    if not np.isfinite(largest).all():
        raise _overflow(what)
    mantissa, exponent = np.frexp(largest / most)
    needed: Exponents = np.maximum(exponent - (mantissa == 0.5), 0).astype(np.int64)
    return needed


def scaled_halves(tensor: torch.Tensor, exponents: Exponents) -> tuple[Halves, int]:
    """fl16(x * 2^-e), [batch, heads, tokens, d], and how many values that were not zero became zero.

    Precondition: `exponents` [batch, heads] are at least those of the tensor.
    """
    tensor = tensor.detach()
    factors = torch.from_numpy(np.exp2(-exponents.astype(np.float64)))[..., None, None].to(tensor.device)
    half = (tensor.double() * factors).to(torch.float16)
    lost = int(torch.count_nonzero(tensor)) - int(torch.count_nonzero(half))
    return half.cpu().contiguous().numpy(), lost


@cache
def _pattern(magnitude: float) -> int:
    """The bits of a positive number in binary16. These integers sort like the numbers; Inf and NaN come last."""
    return int(np.float16(magnitude).view(np.uint16))


def _plain_halves(tensor: torch.Tensor | Rounded, most: float) -> tuple[Halves, int] | None:
    """As `scaled_halves` without a scale; None unless every magnitude is below `most`.

    The usual case, a few passes over the rounded values: K and V of a prompt are megabytes on the model's own threads.
    """
    if isinstance(tensor, Rounded):
        return (tensor.halves(), tensor.lost) if tensor.largest < _pattern(most) else None
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16 and tensor.numel() > _FEW:
        tensor = tensor.float()  # exact, and faster than torch's own way from bfloat16 to binary16
    half: Halves = tensor.to(torch.float16).cpu().numpy()
    largest, zeros = largest_and_zeros(half)
    if largest >= _pattern(most):
        return None
    lost = 0
    if zeros and tensor.dtype != torch.float16:
        lost = zeros - (half.size - int(torch.count_nonzero(tensor)))
    return half, lost


class HeadScale:
    """The exponents of K or of V of one layer, chosen from the first tokens of a batch with room for larger ones.

    `stored_as`: the format in which drives store the numbers, to which they are rounded. The scaled numbers are in its
    range. `shipped`: the checkpoint's scale of e4m3 numbers, for all heads or for each; then no exponent is chosen, and
    larger values become the largest number.
    """

    def __init__(self, what: str, stored_as: RowFormat = RowFormat.BINARY16, shipped: Scale | None = None) -> None:
        self.what = what
        self.stored_as = stored_as
        self.most = largest_number(stored_as)
        self._factors: Factors | None = None
        self.exponents = None
        self.shipped = None if shipped is None else np.array(shipped, np.float32)
        self.lost = 0  # values that underflowed to zero
        self.saturated = 0  # values that became the largest number of a shipped scale

    def convert(self, states: torch.Tensor | Rounded) -> Halves:
        """The halves of [batch, heads, tokens, d], rounded as they are stored.

        Raises RangeError where a later value outgrows its head's scale, and for Inf and NaN.
        """
        tensor = states.source if isinstance(states, Rounded) else states
        if self.shipped is not None:
            return self._as_shipped(tensor)
        found, as_stored = None, isinstance(states, Rounded)
        if self.exponents is None or self._is_power_one:
            found = _plain_halves(states, self.most / HEADROOM if self.exponents is None else self.most)
        if found is None:
            found, as_stored = self._scaled(tensor), False
        elif self.exponents is None:
            self.exponents = np.zeros(tensor.shape[:2], np.int64)
        halves, lost = found
        stored = halves if as_stored else rounded(halves, self.stored_as)
        if self.stored_as == RowFormat.FP8 and not as_stored:  # its smallest number is larger than that of binary16
            lost += int(np.count_nonzero(halves)) - int(np.count_nonzero(stored))
        self.lost += lost
        return stored

    def as_stored(self, states: torch.Tensor) -> NDArray[np.uint8] | None:
        """What `convert` has made of a row, as the model has it in its precision [heads, tokens, d]: the drives' bytes,
        [heads, tokens, bytes of a row]. None where that precision cannot hold the numbers: 4 bits in bfloat16.
        """
        if states.dtype == torch.bfloat16 and self.stored_as == RowFormat.INT4:
            return None
        if not self.is_one:
            states = states.double() / torch.from_numpy(self.factors[0])[:, None, None].to(states.device)
        return encoded(states.to(torch.float16).cpu().numpy(), self.stored_as)

    def is_plain(self, largest: int) -> bool:
        """True if `convert` would not scale a tensor whose largest magnitude has these bits (see Rounded), nor round
        it further: then its halves stand for themselves.
        """
        if self.shipped is not None or self.stored_as != RowFormat.BINARY16:
            return False
        if self.exponents is None:
            return largest < _pattern(self.most / HEADROOM)
        return self._is_power_one and largest < _pattern(self.most)

    def _as_shipped(self, tensor: torch.Tensor) -> Halves:
        """e4m3(fl32(x / scale)), saturated, as vLLM stores it."""
        tensor = tensor.detach().to(torch.float32)
        if not torch.isfinite(tensor).all():
            raise _overflow(self.what)
        scale = torch.from_numpy(self.shipped).to(tensor.device)  # a tensor: CUDA divides by a number inexactly
        quotients = tensor / scale[:, None, None]
        fitting = quotients.clamp(-self.most, self.most)
        codes = fitting.to(torch.float8_e4m3fn)
        stored = rounded(codes.to(torch.float16).cpu().contiguous().numpy(), self.stored_as)  # only makes -0 +0
        self.saturated += int(torch.count_nonzero(quotients != fitting))
        self.lost += int(torch.count_nonzero(tensor)) - int(np.count_nonzero(stored))
        if self.exponents is None:
            self.exponents = np.zeros(tensor.shape[:2], np.int64)
        return stored

    def _scaled(self, tensor: torch.Tensor) -> tuple[Halves, int]:
        if self.exponents is None:
            self.exponents = exponents_of(tensor, self.what, self.most / HEADROOM)
        else:
            outgrown = exponents_of(tensor, self.what, self.most) > self.exponents
            if outgrown.any():
                row, head = np.argwhere(outgrown)[0]
                fits = math.ldexp(self.most, int(self.exponents[row, head]))
                raise RangeError(
                    f"{self.what}, KV head {head}, outgrew {fits:g}, what its first tokens asked for: "
                    "put more of the text into the prompt"
                )
        return scaled_halves(tensor, self.exponents)

    @property
    def exponents(self) -> Exponents | None:
        """[batch, heads]; None before the first tokens."""
        return self._exponents

    @exponents.setter
    def exponents(self, exponents: Exponents | None) -> None:
        self._exponents, self._factors = exponents, None
        self._is_power_one = exponents is not None and not exponents.any()

    @property
    def is_one(self) -> bool:
        """True if stored numbers stand for themselves in every head; known from the first tokens on."""
        return self.shipped is None and self._is_power_one

    @property
    def factors(self) -> Factors:
        """What a stored 1 stands for, [batch, heads]; known from the first tokens on. Read-only."""
        if self._factors is None:
            assert self._exponents is not None
            powers: Factors = np.exp2(self._exponents.astype(np.float64))
            self._factors = powers if self.shipped is None else powers * self.shipped
        return self._factors

    def rearrange(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was."""
        if self.exponents is not None:
            self.exponents = self.exponents[rows]

    def split(self, rows: slice) -> HeadScale:
        """That of some rows, known from the first tokens on. It counts what does not fit from 0 on."""
        part = HeadScale(self.what, self.stored_as)
        part.shipped = self.shipped
        part.exponents = None if self.exponents is None else self.exponents[rows]
        return part

    def count(self, part: HeadScale) -> None:
        """Add what a part has counted."""
        self.lost += part.lost
        self.saturated += part.saturated

    def plain(self) -> list[list[int]] | None:
        """The exponents as plain values for `restore`; None before the first tokens."""
        return None if self.exponents is None else self.exponents.tolist()

    def restore(self, exponents: list[list[int]] | None) -> None:
        """Take the exponents that `plain` returned."""
        self.exponents = None if exponents is None else np.array(exponents, np.int64)

    @property
    def heads_scaled(self) -> int:
        """Heads that are scaled by a power of two, over all rows."""
        return 0 if self.exponents is None else int(np.count_nonzero(self.exponents))


def _overflow(what: str) -> RangeError:
    return RangeError(f"{what} holds Inf or NaN: the model's own numbers overflow, try another precision")
