"""The governor of writes: how much is written for each hit, and what may be stored when the day's budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kvdrive.prefix.accounts import Accounts

_DAY = 86_400


@dataclass(frozen=True)
class Wear:
    """`bytes_today`: written for stored sessions since midnight UTC. `state`: "open", or "second use" when the budget
    is spent.

    `bytes_per_hit`: written over all days for each session that was found and used; None before the first hit.
    """

    state: str
    bytes_today: int
    budget: int
    bytes_written: int
    hits: int
    refused: int

    @property
    def bytes_per_hit(self) -> float | None:
        """See the class."""
        return self.bytes_written / self.hits if self.hits else None


class Governor:
    """Admits sessions while fewer than `budget` bytes were written today; 0: always.

    Beyond the budget only prefixes that were looked up before are stored: K and V that are never used a second time
    do not pay for their writes. Call inside a transaction of the index.
    """

    def __init__(self, accounts: Accounts, budget: int = 0, clock: Callable[[], float] = time.time) -> None:
        self._accounts = accounts
        self._clock = clock
        self.budget = budget

    def wrote(self, size: int) -> None:
        """Count bytes of K and V that were written for a stored session."""
        self._begin_day()
        self._accounts.bump("bytes_today", size)
        self._accounts.bump("bytes_written", size)

    def hit(self) -> None:
        """Count a session that was found and used."""
        self._accounts.bump("hits")

    def admits(self, keys: list[int]) -> bool:
        """True if a sequence with these keys of blocks may be stored."""
        self._begin_day()
        again = self._accounts.wanted(keys)
        if not self.budget or again or self._accounts.counter("bytes_today") < self.budget:
            return True
        self._accounts.bump("refused")
        return False

    def wear(self) -> Wear:
        """The state, for people and metrics."""
        counter = self._accounts.counter
        today = counter("bytes_today") if counter("day", -1) == self._day() else 0
        spent = self.budget > 0 and today >= self.budget
        return Wear(
            "second use" if spent else "open",
            today,
            self.budget,
            counter("bytes_written"),
            counter("hits"),
            counter("refused"),
        )

    def _day(self) -> int:
        return int(self._clock() // _DAY)

    def _begin_day(self) -> None:
        """A later day starts a new budget; an earlier one, after the clock was set back, does not."""
        if self._day() > self._accounts.counter("day", -1):
            self._accounts.put("day", self._day())
            self._accounts.put("bytes_today", 0)
