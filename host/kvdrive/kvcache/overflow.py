"""What happens when a sequence has used up the positions of its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from kvdrive.choices import OnOverflow
from kvdrive.errors import InputError


@dataclass(frozen=True)
class Overflow:
    """`overflow` "error": the call fails. "trim": tokens behind the first group leave the drives; the others keep their
    K and V, and positions go on counting.

    At least the share `overflow_ratio` of all tokens leaves. The first group stays, because it holds the attention
    sinks (CachedAttention's token truncation keeps none). `context`: tokens that a sequence holds at most; 0: as many
    as the model has positions. Raises InputError.
    """

    overflow: OnOverflow = "error"
    overflow_ratio: float = 0.5
    context: int = 0

    def __post_init__(self) -> None:
        if self.overflow not in get_args(OnOverflow):
            raise InputError(f"overflow is {' or '.join(map(repr, get_args(OnOverflow)))}, not {self.overflow!r}")
        if not 0 < self.overflow_ratio < 1:
            raise InputError(
                f"the overflow ratio {self.overflow_ratio} is outside 0 to 1: 0.5 removes half of the tokens"
            )
        if self.context < 0:
            raise InputError("the context cannot be negative: 0 stands for the model's positions")

    def tokens_to_remove(self, held: int, new_tokens: int, limit: int, group: int) -> int:
        """Tokens to remove, whole groups, so that `held` and `new_tokens` together are at most `limit`.

        The first group of `group` tokens and the last whole one stay. Raises InputError when that cannot be.
        """
        needed = max(held + new_tokens - limit, int(held * self.overflow_ratio))
        tokens = -(-needed // group) * group
        if held + new_tokens - limit > (removable := max(held // group - 2, 0) * group):
            raise InputError(
                f"{new_tokens} tokens at once do not fit into a context of {limit} tokens: shorten the text, or raise "
                "the context"
            )
        return min(tokens, removable)


@dataclass(frozen=True)
class Removal:
    """`tokens` tokens behind the first group were removed when the sequence had `at` tokens, removed ones included."""

    at: int
    tokens: int
