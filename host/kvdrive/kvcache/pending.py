"""Pending tokens, which are the newest tokens of a layer, held on the host until they are written; and their scores."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive._native import Engine
from kvdrive.nvme.commands import Halves

Scores = NDArray[np.int32]


class PendingTokens:
    """K and V of one layer's tokens that are not on a drive yet: [batch, heads, count, d] binary16."""

    def __init__(self, batch: int, heads: int, capacity: int, head_dim: int) -> None:
        self._k = np.empty((batch, heads, capacity, head_dim), np.float16)
        self._v = np.empty_like(self._k)
        self.count = 0

    @property
    def k(self) -> Halves:
        """K of the pending tokens."""
        return self._k[:, :, : self.count]

    @property
    def v(self) -> Halves:
        """V of the pending tokens."""
        return self._v[:, :, : self.count]

    def add(self, k: Halves, v: Halves) -> None:
        """Append [batch, heads, tokens, d]; there must be room."""
        end = self.count + k.shape[2]
        self._k[:, :, self.count : end], self._v[:, :, self.count : end] = k, v
        self.count = end

    def take(self, tokens: int) -> tuple[Halves, Halves]:
        """Remove the oldest tokens and return a copy of their K and V."""
        k, v = self._k[:, :, :tokens].copy(), self._v[:, :, :tokens].copy()
        rest = self.count - tokens
        for array in (self._k, self._v):
            array[:, :, :rest] = array[:, :, tokens : self.count].copy()
        self.count = rest
        return k, v

    def rearrange(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was."""
        self._k, self._v = self._k[rows], self._v[rows]

    def split(self, rows: slice) -> PendingTokens:
        """Those of some rows. What is added or taken there changes the memory of these rows, and not `count`."""
        part = PendingTokens.__new__(PendingTokens)
        part._k, part._v, part.count = self._k[rows], self._v[rows], self.count
        return part


def sink_scores(sinks: torch.Tensor, kv_heads: int) -> Scores:
    """Scores of attention sinks [heads] as the drive takes them: int32 [kv_heads, g], Q12.20 of s * log2(e)."""
    values = sinks.detach().double().cpu().numpy() * math.log2(math.e)
    fixed = np.rint(values * 2.0**abi.SCORE_FRACTION_BITS)
    found: Scores = np.clip(fixed, -(2**31), 2**31 - 1).astype(np.int32).reshape(kv_heads, -1)
    return found


def with_sinks(sinks: Scores, queries: Halves, scores: Scores | None, inline_v: Halves | None) -> tuple[Scores, Halves]:
    """The inline tokens of a command, with a token in front of them that has V = 0, for the sinks [heads, g].

    `queries` [heads, tokens x g, d]; `scores` [heads, tokens x g, n] and `inline_v` [heads, n, d], None without tokens.
    """
    heads, count, head_dim = queries.shape
    first = np.tile(sinks, (1, count // sinks.shape[1]))[..., None]
    zero = np.zeros((heads, 1, head_dim), np.float16)
    if scores is None or inline_v is None:
        return first, zero
    return np.concatenate([first, scores], axis=2), np.concatenate([zero, inline_v], axis=1)


class Scorer:
    """Scores of host tokens exactly as the drive computes those of its own: int32, Q12.20."""

    def __init__(self) -> None:
        self._engine = Engine("fast", 1)

    def scores(self, q: Halves, k: Halves, scale_log2e: int) -> Scores:
        """q [heads, g, d], k [heads, tokens, d], binary32 pattern of the scale -> int32 [heads, g, tokens]."""
        found: Scores = self._engine.scores(
            np.ascontiguousarray(q).view(np.uint16), np.ascontiguousarray(k).view(np.uint16), scale_log2e
        )
        return found
