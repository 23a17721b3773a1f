"""A claim of a paper: what it says, our own value for it, and whether that says anything about our models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kvdrive.study.stated import watched

TOLERANCE = 0.05
"""The largest relative error of every claim: what rounding to two digits, the papers' usual precision, hides at most
(1.0 may be 0.95 or 1.05)."""


NEAR = 0.15
"""The error within which the page counts a prediction as near."""


class Kind(StrEnum):
    """How we get our value."""

    arithmetic = "arithmetic"  # from sizes, or from other numbers of the papers; or it holds by construction
    modelled = "modelled"
    measured = "measured here"
    hardware = "needs hardware or data that we lack"
    contradiction = "contradiction inside the paper"
    input = "input of a model"


class Relation(StrEnum):
    """How our value must stand to the paper's."""

    equal = "="
    at_least = ">="
    at_most = "<="


class Verdict(StrEnum):
    """`predicted` and `measured` are agreement. `open`: a value is possible, and we have none yet."""

    predicted = "predicted"
    measured = "measured"
    arithmetic = "arithmetic"
    input = "input"
    differs = "differs"
    open = "open"
    none = "no value"


AGREEMENT = (Verdict.predicted, Verdict.measured)


@dataclass(frozen=True)
class Claim:
    """`value`: the paper's numbers, in `unit`; empty where it states none. `ours` computes as many.

    A statement without a number has the value 1 (true). `settings` instead of `ours`: the values of each setting of a
    range that the claim says the same of; the worst one counts. `note` says what goes in. `differs` says why our value
    differs, exactly where it does. `command` measures our value. `missing` says why there is none.
    """

    key: str
    where: str
    says: str
    value: tuple[float, ...] = ()
    unit: str = ""
    kind: Kind = Kind.arithmetic
    ours: Callable[[], Sequence[float]] | None = None
    relation: Relation = Relation.equal
    settings: Callable[[], Sequence[Sequence[float]]] | None = None
    note: str = ""
    differs: str = ""
    command: str = "kvdrive ledger"
    missing: str = ""


@dataclass(frozen=True)
class Entry:
    """A claim with our values. `error`: the largest one; None without values. `reads`: the claims whose stated numbers
    our values were computed from."""

    claim: Claim
    values: tuple[float, ...] = ()
    error: float | None = None
    reads: frozenset[str] = frozenset()

    @property
    def verdict(self) -> Verdict:
        """What the ledger says of the claim. Nothing agrees with a number that it was computed from."""
        kind = self.claim.kind
        if self.error is None:
            if kind is Kind.input:
                return Verdict.input
            return Verdict.none if kind is Kind.hardware else Verdict.open
        if not self.error <= TOLERANCE:
            return Verdict.differs
        if kind is Kind.input or self.claim.key in self.reads:
            return Verdict.input
        return {Kind.modelled: Verdict.predicted, Kind.measured: Verdict.measured}.get(kind, Verdict.arithmetic)

    @property
    def independent(self) -> bool:
        """True if a model computes our value without the claim's own number."""
        return self.error is not None and self.claim.kind is Kind.modelled and self.claim.key not in self.reads

    @property
    def near(self) -> bool:
        """True if that value is within NEAR of the paper's."""
        return self.independent and self.error is not None and self.error <= NEAR

    @property
    def unexplained(self) -> str:
        """What is wrong with the explanation of the verdict, as a sentence; empty if nothing is."""
        if self.error is None or (self.verdict is Verdict.differs) == bool(self.claim.differs):
            return ""
        off = f"{self.claim.key} is {100 * self.error:.3g} % off"
        return f"{off}: remove its `differs`" if self.claim.differs else f"{off}: say why in its `differs`"


def evaluate(claim: Claim) -> Entry:
    """Compute our values of a claim; none where the page that they are read from is not installed.

    Raises ValueError if their number differs from the paper's.
    """
    try:
        with watched() as reads:
            rows = computed(claim)
    except FileNotFoundError:  # a wheel has no docs/
        return Entry(claim)
    if not rows:
        return Entry(claim)
    for row in rows:
        if len(row) != len(claim.value):
            raise ValueError(f"{claim.key}: {len(row)} values of our own for {len(claim.value)} of the paper")
    columns = zip(zip(*rows, strict=True), claim.value, strict=True)
    worst = [max(((_error(claim, ours, paper), ours) for ours in column), key=_first) for column, paper in columns]
    return Entry(claim, tuple(ours for _, ours in worst), max(error for error, _ in worst), frozenset(reads))


def computed(claim: Claim) -> list[tuple[float, ...]]:
    """Our values of a claim, in each of its settings; empty where we have none."""
    one = claim.ours
    settings = claim.settings or (lambda: [] if one is None else [one()])
    return [tuple(float(value) for value in row) for row in settings()]


def _first(pair: tuple[float, float]) -> float:
    return pair[0]


def _error(claim: Claim, ours: float, paper: float) -> float:
    """Relative to the paper's value; of a share or saving in per cent, to what it leaves of 100 % if that is less:
    94 and 97 % saved leave 6 and 3 % of the time."""
    if not math.isfinite(ours):
        return math.inf
    above, below = claim.relation is Relation.at_least, claim.relation is Relation.at_most
    if (above and ours >= paper) or (below and ours <= paper):
        return 0.0
    unit = min(paper, 100 - paper) if claim.unit == "%" and 0 < paper < 100 else abs(paper)
    return abs(ours - paper) / unit if unit else abs(ours)
