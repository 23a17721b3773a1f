"""K and V of one layer in preallocated tensors, in the model's precision, where the model computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.budget import Claim
from kvdrive.kvcache.copies import sent
from kvdrive.kvcache.scaling import Factors, Halves

_STEP = 256  # tokens; tensors grow to a multiple of it
_OF_GPU = 0.9  # of the memory that is free: the rest is for what the GPU computes with


def bound_on(device: torch.device) -> int:
    """Bytes of a device's memory that K and V may take if nobody gives a bound; 0: no bound, for memory of the host."""
    return int(_OF_GPU * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0


def require_one_device(devices: Iterable[torch.device]) -> None:
    """Raises UnsupportedError for a model whose parts are on several devices."""
    found = sorted({str(device) for device in devices if device.type != "meta"})
    if len(found) > 1:
        raise UnsupportedError(
            f"the model is on {', '.join(found)}, and K and V in memory are on one device: load it to one, or attend "
            "in the drive with `active=drive`"
        )


@dataclass(frozen=True)
class Place:
    """Where one cache holds K and V in memory. `claim` is asked before bytes are allocated."""

    dtype: torch.dtype
    device: torch.device
    claim: Claim


class Rows:
    """K and V [batch, heads, capacity, d]. The caller knows how many tokens are in use."""

    def __init__(self, place: Place, batch: int, heads: int, head_dim: int, capacity: int = 0) -> None:
        self._place = place
        self._shape = (batch, heads, head_dim)
        self.k = self.v = self._empty(0)
        if capacity:
            self.grow(capacity, 0)

    @property
    def bytes(self) -> int:
        """Bytes of both tensors."""
        return int(self.k.nbytes) + int(self.v.nbytes)

    def grow(self, tokens: int, used: int) -> None:
        """Make room for `tokens` tokens in all and keep the first `used`. Raises UnsupportedError without room."""
        have = self.k.shape[2]
        if tokens <= have:
            return
        capacity = capacity_for(max(tokens, have + have // 2) if have else tokens)
        batch, heads, head_dim = self._shape
        self._place.claim.reserve((capacity - have) * 2 * batch * heads * head_dim * self._place.dtype.itemsize)
        for name in ("k", "v"):
            new = self._empty(capacity)
            new[:, :, :used] = getattr(self, name)[:, :, :used]
            setattr(self, name, new)

    def put(
        self, first: int, k: Halves | torch.Tensor, v: Halves | torch.Tensor, factors: tuple[Factors, Factors]
    ) -> None:
        """Store [batch, heads, tokens, d] from token `first` on, multiplied by factors [batch, heads]."""
        for own, halves, of_heads in ((self.k, k, factors[0]), (self.v, v, factors[1])):
            store(own[:, :, first : first + halves.shape[2]], halves, of_heads)

    def remove(self, tokens: range, used: int) -> None:
        """Remove `tokens` of the first `used`; those behind them move down."""
        for own in (self.k, self.v):
            own[:, :, tokens.start : used - len(tokens)] = own[:, :, tokens.stop : used].clone()

    def rearrange(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was."""
        self._place.claim.reserve(self.bytes // self._shape[0] * (len(rows) - self._shape[0]))
        chosen = torch.tensor(rows, device=self.k.device)
        self.k, self.v = self.k[chosen], self.v[chosen]
        self._shape = (len(rows), *self._shape[1:])

    def release(self) -> None:
        """Give the memory back."""
        self._place.claim.reserve(-self.bytes)
        self.k = self.v = self._empty(0)

    def _empty(self, capacity: int) -> torch.Tensor:
        batch, heads, head_dim = self._shape
        return torch.empty(batch, heads, capacity, head_dim, dtype=self._place.dtype, device=self._place.device)


def capacity_for(tokens: int) -> int:
    """Tokens for which tensors are made that have to hold `tokens`."""
    return -(-tokens // _STEP) * _STEP


def store(target: torch.Tensor, halves: Halves | torch.Tensor, factors: Factors) -> None:
    """Copy halves [..., heads, tokens, d] to `target` of the same shape, multiplied by factors [..., heads].

    To a GPU on the current stream and without waiting, from pinned memory; numbers are converted there.
    """
    source = sent(halves if isinstance(halves, torch.Tensor) else torch.from_numpy(halves), target.device)
    if (factors != 1).any():
        source = source.double() * sent(torch.from_numpy(factors), target.device)[..., None, None]
    target.copy_(source)
