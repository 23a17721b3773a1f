"""How many tokens of a call that verifies a draft will probably last."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Accepted = float | Literal["auto"]
_MEMORY = 15 / 16  # weight of the past against one call
_EXACT = 1e-9  # a share times its tokens is a whole number in spite of rounding


@dataclass
class Acceptance:
    """`share` of the tokens of a verifying call that last: alpha of LLM in a flash. `measured`: it follows `add`."""

    share: float = 1.0
    measured: bool = False
    _kept: float = 0.0
    _verified: float = 0.0

    @classmethod
    def of(cls, accepted: Accepted) -> Acceptance:
        """A share that is given, or one that is measured, with 1 before the first call."""
        return cls(measured=True) if accepted == "auto" else cls(accepted)

    def lasting(self, tokens: int) -> int:
        """How many of `tokens` will last: the first ones."""
        return math.ceil(self.share * tokens - _EXACT)

    def add(self, kept: int, verified: int) -> None:
        """A call has computed `verified` tokens, the last known one and its draft; the first `kept` of them last."""
        if self.measured:
            self._kept = _MEMORY * self._kept + kept
            self._verified = _MEMORY * self._verified + verified
            self.share = self._kept / self._verified
