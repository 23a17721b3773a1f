"""SparF: SparQ attention made for flash (InstInfer, HPCA 2025), run by the drive as three jobs."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

from kvdrive import abi
from kvdrive.config.abilities import Ability
from kvdrive.policies.base import share
from kvdrive.policies.drive import DrivePolicy
from kvdrive.policies.parameters import Mask, Parameters

LOCAL_SHARE = Fraction(1, 4)  # share of the chosen tokens that are the most recent ones, as in the SparQ paper


class SparF(DrivePolicy):
    """`ratio` of K's embedding rows choose `ratio` of the tokens; the others are replaced by the mean of all V.

    The query heads of a KV head share each choice. If the choice would be all tokens, attention is exact.
    Embedding rows are read from a second copy of K, which is binary16 whatever the format of K and V is.
    """

    name: ClassVar[str] = "sparf"
    provides: ClassVar[frozenset[Ability]] = DrivePolicy.provides - {Ability.SINKS}
    lacks: ClassVar[Mapping[Ability, str]] = {
        **DrivePolicy.lacks,
        Ability.SINKS: "attention sinks would count in its mean of V",
    }
    append_options: ClassVar[int] = abi.AppendOption.APPEND_SPARSE

    def rows(self, head_dim: int) -> int:
        """Number of embedding rows of K that are read."""
        return share(head_dim, self.ratio)

    def chosen(self, tokens: int) -> int:
        """Number of tokens that are attended to."""
        return min(share(tokens, self.ratio), abi.MAX_TOP_K)

    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, pending: int = 0) -> Parameters:
        r, k_top = self.rows(head_dim), self.chosen(tokens + pending)
        local = int(k_top * LOCAL_SHARE)
        k_top = max(1, min(k_top - pending, tokens))
        if k_top == tokens and r == head_dim:
            return Parameters(valid=valid)
        return Parameters(abi.Mode.SPARF_ATTEND, r, k_top, min(max(local - pending, 0), k_top), valid)

    def bytes_needed(self, tokens: int, head_dim: int, row_bytes: int) -> int:
        k_top, r = self.chosen(tokens), self.rows(head_dim)
        columns = 0 if k_top == tokens and r == head_dim else 2 * tokens * r
        return columns + 2 * k_top * row_bytes
