"""What happens when a sequence has used up the positions of its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from kvdrive.choices import OnOverflow
from kvdrive.config.option import Needs, option
from kvdrive.errors import InputError


@dataclass(frozen=True)
class Overflow:
    """What happens when a sequence has used up its positions. Raises InputError.

    "trim" removes tokens behind the first group, at least the share `overflow_ratio` of all; the others keep their K
    and V, and positions go on counting. The first group stays, because it holds the attention sinks (CachedAttention's
    token truncation keeps none).
    """

    overflow: OnOverflow = option(
        "error", "of the positions. error: the text ends; trim: old tokens are removed, behind the first few"
    )
    overflow_ratio: float = option(
        0.5,
        "share of the tokens that are removed at once with `overflow=trim`",
        low=0.01,
        high=0.99,
        needs=Needs("`overflow=trim`", lambda given: given["overflow"] == "trim"),
    )
    context: int = option(0, "tokens that a text holds at most; 0: as many as the model has positions", low=0)

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

        The first group of `group` tokens and the last whole one stay. Raises InputError when that cannot be, which
        names the least context: for these tokens, and for later removals of a group.
        """
        needed = max(held + new_tokens - limit, int(held * self.overflow_ratio))
        tokens = -(-needed // group) * group
        if held + new_tokens - limit > (removable := max(held // group - 2, 0) * group):
            raise InputError(
                f"{new_tokens} tokens at once do not fit into a context of {limit} tokens: shorten the text, or raise "
                f"the context to {max(held + new_tokens - removable, 3 * group)} at least"
            )
        return min(tokens, removable)


@dataclass(frozen=True)
class Removal:
    """`tokens` tokens behind the first group were removed when the sequence had `at` tokens, removed ones included."""

    at: int
    tokens: int
