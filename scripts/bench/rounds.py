"""Contenders that take turns, round by round, so that a machine that slows down for a while slows down all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Counts = dict[str, float]
Round = dict[str, Counts]  # what each contender has counted, "seconds" among it


@dataclass(frozen=True)
class Contender:
    """What is compared. `run` measures once: its wall time counts, or the "seconds" of the counts that it returns."""

    name: str
    run: Callable[[], object]


class Rounds:
    """What was counted, one number per round. Ratios are taken inside a round, and their median is reported."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self.rounds = list(rounds)

    @property
    def names(self) -> list[str]:
        """The contenders in their order."""
        return list(self.rounds[0])

    def values(self, name: str, what: str = "seconds") -> list[float]:
        """The count `what` of a contender in each round."""
        return [one[name][what] for one in self.rounds]

    def median(self, name: str, what: str = "seconds") -> float:
        """Over the rounds."""
        return statistics.median(self.values(name, what))

    def faster(self, name: str, than: str, what: str = "seconds") -> float:
        """How many times as fast `name` is as `than`: the median of the rounds' ratios."""
        pairs = zip(self.values(than, what), self.values(name, what), strict=True)
        return statistics.median(theirs / own for theirs, own in pairs)


def seconds(run: Callable[[], object]) -> float:
    """Wall time of a call."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def take_turns(contenders: Iterable[Contender], rounds: int, warm_up: int = 0) -> Rounds:
    """Run all contenders in each round. The first `warm_up` rounds do not count."""
    running, found = list(contenders), []
    for turn in range(warm_up + rounds):
        one: Round = {}
        for contender in running:
            began = time.perf_counter()
            counts = contender.run()
            took = time.perf_counter() - began
            one[contender.name] = counts if isinstance(counts, dict) else {"seconds": took}
        if turn >= warm_up:
            found.append(one)
    return Rounds(found)
