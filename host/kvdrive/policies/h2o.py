"""H2O: heavy hitters and recent tokens stay, the others are dropped for good (Zhang et al., NeurIPS 2023)."""

from __future__ import annotations

from typing import ClassVar

from kvdrive.errors import UnsupportedError
from kvdrive.policies.base import Mask, Parameters, Policy, row_bytes, share


class H2O(Policy):
    """Half of the kept tokens are the most recent ones, the other half those with the largest attention mass so far.

    The budget is `ratio` of the prompt and stays. The drive does not return probabilities, so this policy runs on the
    host (`policies.host`), on the drive's `fast` engine over the tokens that are kept.
    """

    name: ClassVar[str] = "h2o"
    in_drive: ClassVar[bool] = False

    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, tail_tokens: int = 0) -> Parameters:
        """Not possible. Raises UnsupportedError."""
        raise UnsupportedError("h2o drops tokens by attention weights, which no drive returns: it runs on the host")

    def bytes_needed(self, tokens: int, head_dim: int) -> int:
        """See Policy; `tokens` is the length of the prompt."""
        return 2 * share(tokens, self.ratio) * row_bytes(head_dim)
