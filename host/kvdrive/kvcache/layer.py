"""K and V of one layer of a batch: what the host has of them, and what it knows of those on the drives."""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive.kvcache.pending import PendingTokens
from kvdrive.kvcache.scaling import Factors, Halves, HeadScale
from kvdrive.kvcache.shipped_scales import LayerScales
from kvdrive.nvme.wire import RowFormat


class StoredLayer:
    """Layer `index`: `stored` tokens were sent to the drives, the newest are `pending`.

    `spill`: tokens that are sent at once. `stored_as`, `shipped`: the format, and the checkpoint's scales of e4m3.
    `turn`: K and V of the last call, where they went to the drives at once. `moved`: K and V of the first group, to
    which queries attend in place of the first group on the drives. `score_scales`: the scale of K's heads, of the
    scores, and what was computed from them last.
    """

    def __init__(self, index: int, spill: int, stored_as: RowFormat, shipped: LayerScales | None = None) -> None:
        self.index = index
        self._spill = spill
        self._stored_as = stored_as
        self._shipped = shipped
        self.forget()

    def forget(self) -> None:
        """Make the layer empty. Sends no command to the drives."""
        of_k, of_v = (self._shipped.k, self._shipped.v) if self._shipped else (None, None)
        self.key_scale = HeadScale(f"K of layer {self.index}", self._stored_as, of_k)
        self.value_scale = HeadScale(f"V of layer {self.index}", self._stored_as, of_v)
        self.stored = 0
        self.pending: PendingTokens | None = None
        self.turn: tuple[Halves, Halves] | None = None
        self.moved: tuple[Halves, Halves] | None = None
        self.score_scales: tuple[Factors, float | None, NDArray[np.uint32]] | None = None

    def begin(self, tokens: int, batch: int, kv_heads: int, head_dim: int) -> None:
        """The layer has a shape, and `tokens` tokens on the drives."""
        self.stored = tokens
        self.pending = PendingTokens(batch, kv_heads, 2 * self._spill, head_dim)

    @property
    def is_empty(self) -> bool:
        """True until the first call has begun."""
        return self.pending is None

    @property
    def tokens(self) -> int:
        """Tokens sent and pending, without those in transfer from the model's device."""
        return self.stored + (self.pending.count if self.pending else 0)

    @property
    def kv_heads(self) -> int:
        """0 before the first call."""
        return self.pending.k.shape[1] if self.pending else 0

    @property
    def head_dim(self) -> int:
        """0 before the first call."""
        return self.pending.k.shape[3] if self.pending else 0

    def truncate(self, tokens: int) -> None:
        """Drop all but the first `tokens` tokens. Sends no command to the drives."""
        if self.pending:
            self.pending.count = min(self.pending.count, max(tokens - self.stored, 0))
        self.stored = min(self.stored, tokens)

    def rearrange(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was."""
        if self.pending:
            self.pending.rearrange(rows)
        if self.moved:
            self.moved = self.moved[0][rows], self.moved[1][rows]
        self.key_scale.rearrange(rows)
        self.value_scale.rearrange(rows)

    def move_first(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """From now on attend to these K and V [batch, heads, tokens, d] instead of those of the first tokens."""
        self.moved = self.key_scale.convert(keys), self.value_scale.convert(values)

    @property
    def moved_tokens(self) -> int:
        """Tokens of `moved`."""
        return self.moved[0].shape[2] if self.moved else 0

    def describe(self) -> dict[str, Any]:
        """KV heads, head dimension and the exponents of the scales of K and V, as plain values for `resume`."""
        scales = {"k": self.key_scale.plain(), "v": self.value_scale.plain()}
        return {"kv_heads": self.kv_heads, "head_dim": self.head_dim, **scales}

    def resume(self, tokens: int, batch: int, described: dict[str, Any]) -> None:
        """Continue behind `tokens` tokens that are on the drives."""
        self.key_scale.restore(described["k"])
        self.value_scale.restore(described["v"])
        self.begin(tokens, batch, described["kv_heads"], described["head_dim"])

    def inline(self, row: int, heads: slice, first: int, places: NDArray[np.intp]) -> tuple[Halves, Halves]:
        """K and V [heads, n, d] of tokens that come with a query: the first group if it moved, then those at `places`
        behind token `first`, which are pending or of the last call.
        """
        assert self.pending is not None
        k, v = self.pending.k, self.pending.v
        if first != self.stored:
            assert self.turn is not None
            k, v = self.turn
            places = places + first - (self.stored - k.shape[2])
        k, v = k[row, heads][:, places], v[row, heads][:, places]
        if self.moved is None:
            return k, v
        first_k, first_v = self.moved
        return np.concatenate([first_k[row, heads], k], axis=1), np.concatenate([first_v[row, heads], v], axis=1)

    def split(self, rows: slice) -> StoredLayer:
        """The layer of some rows, for one call of the model; `join` takes the results over."""
        part = StoredLayer(self.index, self._spill, self._stored_as, self._shipped)
        part.key_scale, part.value_scale = self.key_scale.split(rows), self.value_scale.split(rows)
        part.stored, part.pending = self.stored, self.pending.split(rows) if self.pending else None
        part.moved = (self.moved[0][rows], self.moved[1][rows]) if self.moved else None
        return part

    def join(self, parts: Several[StoredLayer]) -> None:
        """The call of `parts` has ended. They have equally many tokens, pending ones as well."""
        assert self.pending is not None
        first = parts[0]
        assert first.pending is not None
        self.stored, self.pending.count = first.stored, first.pending.count
        for part in parts:
            self.key_scale.count(part.key_scale)
            self.value_scale.count(part.value_scale)
