"""The few numbers of K and V that a projection of another batch shape rounds otherwise.

A matrix product of one token may differ in its last bit from the same token's product among others. So what is rebuilt
is compared with what the model computed when it is stored, and the numbers that differ are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvdrive.nvme.commands import Halves


@dataclass(frozen=True)
class Corrections:
    """Numbers of K or V of one sequence and layer: `halves[i]` at place `places[i]` in heads x d of `tokens[i]`."""

    tokens: NDArray[np.int32]
    places: NDArray[np.int32]
    halves: Halves

    @classmethod
    def none(cls) -> Corrections:
        """Nothing to correct."""
        return cls(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float16))

    def __len__(self) -> int:
        return len(self.tokens)

    def found(self, first: int, right: Halves, rebuilt: Halves) -> Corrections:
        """These and those of tokens from `first` on: `right` and `rebuilt` [heads, tokens, d]."""
        heads, tokens, places = np.nonzero(right.view(np.uint16) != rebuilt.view(np.uint16))
        halves = right[heads, tokens, places]
        at = heads * right.shape[2] + places
        return Corrections(
            np.concatenate([self.tokens, (tokens + first).astype(np.int32)]),
            np.concatenate([self.places, at.astype(np.int32)]),
            np.concatenate([self.halves, halves]),
        )

    def truncate(self, tokens: int) -> Corrections:
        """Those of the first `tokens` tokens."""
        here = self.tokens < tokens
        return self if here.all() else Corrections(self.tokens[here], self.places[here], self.halves[here])

    def apply(self, rebuilt: Halves) -> None:
        """Correct `rebuilt` [heads, tokens, d], the sequence's first tokens, in place."""
        here = self.tokens < rebuilt.shape[1]
        heads, places = np.divmod(self.places[here], rebuilt.shape[2])
        rebuilt[heads, self.tokens[here], places] = self.halves[here]

    def plain(self) -> dict[str, Any]:
        """Plain values for `restored`."""
        return {
            "tokens": self.tokens.tolist(),
            "places": self.places.tolist(),
            "halves": self.halves.view(np.uint16).tolist(),
        }

    @classmethod
    def restored(cls, plain: dict[str, Any]) -> Corrections:
        """What `plain` described."""
        return cls(
            np.array(plain["tokens"], np.int32),
            np.array(plain["places"], np.int32),
            np.array(plain["halves"], np.uint16).view(np.float16),
        )
