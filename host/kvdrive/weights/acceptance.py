"""How many tokens of a draft will probably be accepted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Accepted = float | Literal["auto"]
_MEMORY = 15 / 16  # weight of the past against one call
_EXACT = 1e-9  # a share times its tokens is a whole number in spite of rounding


@dataclass
class Acceptance:
    """`share` of the tokens of a verifying call that are accepted, alpha of LLM in a flash. `measured`: by `add`."""

    share: float = 1.0
    measured: bool = False
    _accepted: float = 0.0
    _verified: float = 0.0

    @classmethod
    def of(cls, accepted: Accepted) -> Acceptance:
        """A share that is given, or one that is measured, with 1 before the first call."""
        return cls(measured=True) if accepted == "auto" else cls(accepted)

    def accepted(self, tokens: int) -> int:
        """How many of `tokens` will probably be accepted: the first ones."""
        return math.ceil(self.share * tokens - _EXACT)

    def add(self, accepted: int, verified: int) -> None:
        """Of `verified` tokens in a call, the last known one and its draft, the first `accepted` were right."""
        if self.measured:
            self._accepted = _MEMORY * self._accepted + accepted
            self._verified = _MEMORY * self._verified + verified
            self.share = self._accepted / self._verified
