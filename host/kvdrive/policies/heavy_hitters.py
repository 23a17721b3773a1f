"""The tokens that H2O retains of one sequence in one layer. After the prompt, each new token replaces one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive._native import Engine
from kvdrive.errors import UnsupportedError
from kvdrive.kernels.native import NativeKernels
from kvdrive.policies.base import share
from kvdrive.policies.host import Halves, Retained

_QUERIES_AT_ONCE = 256


class HeavyHitters(Retained):
    """K and V of one sequence in one layer, [heads, budget + 1, d], of which the first `count` slots are in use.

    Slots are in no order: exact attention depends on the set of tokens only.
    """

    def __init__(self, q: torch.Tensor, k: Halves, v: Halves, ratio: Fraction, scale: float) -> None:
        """Choose from a prompt: q [heads, g, n, d] float32, k and v [heads, n, d]."""
        heads, tokens, head_dim = k.shape
        self.scale = scale
        self.tokens = tokens
        self.budget = share(tokens, ratio) if ratio < 1 else None  # None: everything stays
        self.count = tokens if self.budget is None else self.budget
        self.bytes_read = 0
        mass = prompt_mass(q, torch.from_numpy(k), scale)
        retained = (
            np.stack([self._choose(one) for one in mass]) if self.budget else np.tile(np.arange(tokens), (heads, 1))
        )
        self._k, self._v = np.empty((heads, 0, head_dim), np.float16), np.empty((heads, 0, head_dim), np.float16)
        self._mass, self._position = np.empty((heads, 0), np.float32), np.empty((heads, 0), np.int64)
        self._grow(self.count + 1)
        self._k[:, : self.count] = np.take_along_axis(k, retained[..., None], 1)
        self._v[:, : self.count] = np.take_along_axis(v, retained[..., None], 1)
        self._mass[:, : self.count] = np.take_along_axis(mass, retained, 1)
        self._position[:, : self.count] = retained
        self._kernels = NativeKernels(Engine("fast", 1))

    def attend(self, q: Halves, k: Halves, v: Halves) -> Halves:
        """See Retained. Afterwards, a cache over its budget drops the token with the least attention mass."""
        if self.count == self._k.shape[1]:
            self._grow(2 * self.count)
        slot = self.count
        self._k[:, slot], self._v[:, slot], self._mass[:, slot], self._position[:, slot] = k, v, 0, self.tokens
        self.count += 1
        self.tokens += 1
        keys, values = self._k[:, : self.count], self._v[:, : self.count]
        self.bytes_read += keys.nbytes + values.nbytes
        out = np.stack([self._head(*one) for one in zip(q, keys, values, strict=True)])
        scores = np.einsum("hgd,hsd->hgs", q.astype(np.float32), keys.astype(np.float32)) * self.scale
        p = np.exp(scores - scores.max(-1, keepdims=True))
        self._mass[:, : self.count] += (p / p.sum(-1, keepdims=True)).sum(1)
        if self.budget is not None and self.count > self.budget:
            self._evict()
        return out

    def positions(self, head: int) -> NDArray[np.int64]:
        """Positions of the retained tokens of a head, ascending."""
        return np.sort(self._position[head, : self.count])

    def _head(self, q: Halves, k: Halves, v: Halves) -> Halves:
        result = self._kernels.attention({"q": q, "k": k, "v": v, "scale": self.scale}, "exact")
        if result["status"]:
            raise UnsupportedError("Inf or NaN in the query or in K or V")
        out: Halves = result["out"]
        return out

    def _choose(self, mass: NDArray[np.float32]) -> NDArray[np.intp]:
        """Slots of the tokens of one head that are retained after the prompt; of equal masses, the later one is."""
        assert self.budget is not None
        recent = (self.budget + 1) // 2
        older = mass[: len(mass) - recent]
        heavy = np.argsort(older, kind="stable")[len(older) - (self.budget - recent) :]
        return np.concatenate([heavy, np.arange(len(older), len(mass))])

    def _evict(self) -> None:
        """Drop in each head the token of least mass that is not recent. The last slot's token takes its slot."""
        assert self.budget is not None
        recent = self._position[:, : self.count] >= self.tokens - (self.budget + 1) // 2
        victim = np.where(recent, np.inf, self._mass[:, : self.count]).argmin(1)
        self.count -= 1
        heads = np.arange(len(victim))
        for array in (self._k, self._v, self._mass, self._position):
            array[heads, victim] = array[heads, self.count]

    def _grow(self, slots: int) -> None:
        for name in ("_k", "_v", "_mass", "_position"):
            old = getattr(self, name)
            new = np.empty((old.shape[0], slots, *old.shape[2:]), old.dtype)
            new[:, : old.shape[1]] = old
            setattr(self, name, new)


def prompt_mass(q: torch.Tensor, k: torch.Tensor, scale: float) -> NDArray[np.float32]:
    """Attention mass [heads, n] that each token of a causal prompt got: q [heads, g, n, d], k [heads, n, d]."""
    heads, _, tokens, _ = q.shape
    keys = k.float()
    mass = torch.zeros(heads, tokens)
    for start in range(0, tokens, _QUERIES_AT_ONCE):
        stop = min(start + _QUERIES_AT_ONCE, tokens)
        scores = torch.einsum("hgqd,hsd->hgqs", q[:, :, start:stop].float(), keys[:, :stop]) * scale
        later = torch.ones(stop - start, stop, dtype=torch.bool).triu(start + 1)
        mass[:, :stop] += scores.masked_fill_(later, -torch.inf).softmax(-1).sum((1, 2))
    result: NDArray[np.float32] = mass.numpy()
    return result
