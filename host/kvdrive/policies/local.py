"""Attention to the most recent tokens only."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kvdrive.policies.base import Mask, Parameters, Policy, row_bytes, share


class Local(Policy):
    """Exact attention over the last `ratio` of the tokens: the floor that any choice by content must beat."""

    name: ClassVar[str] = "local"

    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, tail_tokens: int = 0) -> Parameters:
        """See Policy."""
        window = share(tokens + tail_tokens, self.ratio) - tail_tokens
        if window >= tokens:
            return Parameters(valid=valid)
        recent = np.zeros(tokens, np.bool_)
        recent[tokens - max(window, 0 if tail_tokens else 1) :] = True
        return Parameters(valid=recent if valid is None else recent & valid)

    def bytes_needed(self, tokens: int, head_dim: int) -> int:
        """See Policy."""
        return 2 * share(tokens, self.ratio) * row_bytes(head_dim)
