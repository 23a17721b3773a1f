"""Attention to the most recent tokens only."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kvdrive.policies.base import share
from kvdrive.policies.drive import DrivePolicy
from kvdrive.policies.parameters import Mask, Parameters


class Local(DrivePolicy):
    """Exact attention over the last `ratio` of the tokens: the floor that any choice by content must beat."""

    name: ClassVar[str] = "local"

    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, pending: int = 0) -> Parameters:
        window = share(tokens + pending, self.ratio) - pending
        if window >= tokens:
            return Parameters(valid=valid)
        recent = np.zeros(tokens, np.bool_)
        recent[tokens - max(window, 0 if pending else 1) :] = True
        return Parameters(valid=recent if valid is None else recent & valid)

    def bytes_needed(self, tokens: int, head_dim: int, row_bytes: int) -> int:
        return 2 * share(tokens, self.ratio) * row_bytes
