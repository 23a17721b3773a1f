"""Whole units of tokens, chosen in the drive from a 2-bit index of K: exact attention to what was chosen."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import ClassVar

from kvdrive import abi
from kvdrive.errors import InputError
from kvdrive.policies.drive import DrivePolicy
from kvdrive.policies.parameters import Mask, Parameters

DEFAULT_UNIT = 32
_LIMIT_ONE = 1 << 16  # the limit of a command that allows everything to be left unread
_LEAST_UNITS = 2  # the first and the last unit are always chosen


class Groups(DrivePolicy):
    """`ratio` of the units of `unit` tokens are read and attended to exactly; the others are left out.

    Tokens that have no index yet, at most 31, and pending tokens are attended to in addition. If the choice would be
    all units, attention is exact. The query heads of a KV head share each choice.

    `unread`: the drive reads more units than `ratio` where a query head would leave a larger share of the softmax
    unread, as the index estimates it; 0: it never does.
    """

    name: ClassVar[str] = "groups"
    append_options: ClassVar[int] = abi.AppendOption.APPEND_GROUPS
    measures_unread: ClassVar[bool] = True

    def __init__(self, ratio: Fraction = Fraction(1), unit: int = DEFAULT_UNIT, unread: float = 0.0) -> None:
        super().__init__(ratio)
        if not 0 <= unread < 1:
            raise InputError(f"the share that may be left unread is {unread}, not in [0, 1): write it as 0.01")
        if unit not in abi.UNIT_TOKENS:
            raise InputError(f"no unit of {unit} tokens: choose one of {', '.join(map(str, abi.UNIT_TOKENS))}")
        self.unit = unit
        self.unread = unread

    @property
    def label(self) -> str:
        unit = [f"unit {self.unit}"] * (self.unit != DEFAULT_UNIT)
        return ", ".join([str(self.ratio), *unit, *[f"{self.unread:g} unread"] * bool(self.unread)])

    def units(self, tokens: int) -> int:
        """Number of units of a head with `tokens` tokens."""
        return -(-_indexed(tokens) // self.unit)

    def chosen(self, tokens: int) -> int:
        """Number of units that are attended to."""
        units = self.units(tokens)
        return min(units, max(_LEAST_UNITS, ceil(units * self.ratio)))

    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, pending: int = 0) -> Parameters:
        chosen = self.chosen(tokens)
        if chosen == self.units(tokens):
            return Parameters(valid=valid)
        return Parameters(abi.Mode.GROUPS, self.unit, chosen, self._limit, valid)

    @property
    def _limit(self) -> int:
        """`unread` as the command has it; a limit stays one, however small or large it is."""
        return min(max(round(self.unread * _LIMIT_ONE), 1), _LIMIT_ONE - 1) if self.unread else 0

    def bytes_needed(self, tokens: int, head_dim: int, row_bytes: int) -> int:
        """See Policy; the index counts, too. Units that only `unread` asks for do not: they are not known here."""
        chosen, indexed = self.chosen(tokens), _indexed(tokens)
        read = min(chosen * self.unit, indexed) + tokens - indexed
        index = 0 if chosen == self.units(tokens) else indexed // abi.SPAN_TOKENS * index_bytes(head_dim)
        return index + 2 * read * row_bytes


def index_bytes(head_dim: int) -> int:
    """Bytes of the index of a span of K: a range for each channel, and 2 bits for each number."""
    return (abi.SPAN_TOKENS // 4 + 2) * head_dim


def _indexed(tokens: int) -> int:
    return tokens // abi.SPAN_TOKENS * abi.SPAN_TOKENS
