"""Whole units of tokens, chosen in the drive from a 2-bit index of K: exact attention to what was chosen."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import ClassVar

from kvdrive import abi
from kvdrive.errors import InputError
from kvdrive.policies.base import row_bytes
from kvdrive.policies.drive import DrivePolicy
from kvdrive.policies.parameters import Mask, Parameters

DEFAULT_UNIT = 32
_LEAST_UNITS = 2  # the first and the last unit are always chosen


class Groups(DrivePolicy):
    """`ratio` of the units of `unit` tokens are read and attended to exactly; the others are left out.

    Tokens that have no index yet, at most 31, and pending tokens are attended to in addition. If the choice would be
    all units, attention is exact. The query heads of a KV head share each choice.
    """

    name: ClassVar[str] = "groups"
    append_options: ClassVar[int] = abi.AppendOption.APPEND_GROUPS
    measures_unread: ClassVar[bool] = True

    def __init__(self, ratio: Fraction = Fraction(1), unit: int = DEFAULT_UNIT) -> None:
        super().__init__(ratio)
        if unit not in abi.UNIT_TOKENS:
            raise InputError(f"no unit of {unit} tokens: choose one of {', '.join(map(str, abi.UNIT_TOKENS))}")
        self.unit = unit

    def units(self, tokens: int) -> int:
        """Number of units of a head with `tokens` tokens."""
        return -(-_indexed(tokens) // self.unit)

    def chosen(self, tokens: int) -> int:
        """Number of units that are attended to."""
        units = self.units(tokens)
        return min(units, max(_LEAST_UNITS, ceil(units * self.ratio)))

    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, pending: int = 0) -> Parameters:
        """See DrivePolicy."""
        chosen = self.chosen(tokens)
        if chosen == self.units(tokens):
            return Parameters(valid=valid)
        return Parameters(abi.Mode.GROUPS, self.unit, chosen, valid=valid)

    def bytes_needed(self, tokens: int, head_dim: int) -> int:
        """See Policy; the index counts, too."""
        chosen, indexed = self.chosen(tokens), _indexed(tokens)
        read = min(chosen * self.unit, indexed) + tokens - indexed
        index = 0 if chosen == self.units(tokens) else indexed // abi.SPAN_TOKENS * index_bytes(head_dim)
        return index + 2 * read * row_bytes(head_dim)


def index_bytes(head_dim: int) -> int:
    """Bytes of the index of a span of K: a range for each channel, and 2 bits for each number."""
    return (abi.SPAN_TOKENS // 4 + 2) * head_dim


def _indexed(tokens: int) -> int:
    return tokens // abi.SPAN_TOKENS * abi.SPAN_TOKENS
