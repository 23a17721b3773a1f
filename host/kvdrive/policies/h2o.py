"""H2O: heavy hitters and recent tokens stay, the others are dropped for good (Zhang et al., NeurIPS 2023)."""

from __future__ import annotations

from typing import ClassVar

import torch

from kvdrive.policies.base import share
from kvdrive.policies.heavy_hitters import HeavyHitters
from kvdrive.policies.host import Halves, HostPolicy


class H2O(HostPolicy):
    """Half of the retained tokens are the most recent ones, the other half those with the largest mass so far.

    The budget is `ratio` of the prompt and stays. A drive does not return attention weights, so this policy runs on the
    host: exact attention by the drive's `fast` engine over the tokens that are retained.
    """

    name: ClassVar[str] = "h2o"

    def retain(self, q: torch.Tensor, k: Halves, v: Halves, scale: float) -> HeavyHitters:
        return HeavyHitters(q, k, v, self.ratio, scale)

    def bytes_needed(self, tokens: int, head_dim: int, row_bytes: int) -> int:
        """See Policy; `tokens` is the length of the prompt."""
        return 2 * share(tokens, self.ratio) * row_bytes
