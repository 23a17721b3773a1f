"""A claim of a paper: what it says, and our own value for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How we get our value."""

    arithmetic = "arithmetic"
    modelled = "modelled"  # from sizes and published rates
    calibrated = "calibrated"  # modelled with an input that is another of the paper's results
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
    """`open`: a value is possible, and we have none yet."""

    agrees = "agrees"
    differs = "differs"
    open = "open"
    none = "no value"


@dataclass(frozen=True)
class Claim:
    """`value`: the paper's numbers, in `unit`; empty where it states none. `ours` computes as many.

    A statement without a number has the value 1 (true). `bound`: the largest relative error at which the claim agrees.
    `expected`: the largest error that --check accepts where we differ, and `note` says why we do. `command` measures
    our value. `missing` says why there is none.
    """

    key: str
    where: str
    says: str
    value: tuple[float, ...] = ()
    unit: str = ""
    kind: Kind = Kind.arithmetic
    ours: Callable[[], Sequence[float]] | None = None
    relation: Relation = Relation.equal
    bound: float = 0.05
    expected: float | None = None
    note: str = ""
    command: str = "kvdrive ledger"
    missing: str = ""


@dataclass(frozen=True)
class Entry:
    """A claim with our values. `error`: the largest relative error; None without values."""

    claim: Claim
    values: tuple[float, ...]
    error: float | None

    @property
    def verdict(self) -> Verdict:
        """What the ledger says of the claim."""
        if self.error is None:
            closed = self.claim.kind in (Kind.hardware, Kind.input)
            return Verdict.none if closed else Verdict.open
        return Verdict.agrees if self.error <= self.claim.bound else Verdict.differs

    @property
    def fails(self) -> bool:
        """True if the error is larger than it may be."""
        allowed = self.claim.bound if self.claim.expected is None else self.claim.expected
        return self.error is not None and not self.error <= allowed


def evaluate(claim: Claim) -> Entry:
    """Compute our values of a claim; none where the page that they are read from is not installed.

    Raises ValueError if their number differs from the paper's.
    """
    if claim.ours is None:
        return Entry(claim, (), None)
    try:
        values = tuple(float(value) for value in claim.ours())
    except FileNotFoundError:  # a wheel has no docs/
        return Entry(claim, (), None)
    if len(values) != len(claim.value):
        raise ValueError(f"{claim.key}: {len(values)} values of our own for {len(claim.value)} of the paper")
    return Entry(claim, values, max(_error(claim.relation, *pair) for pair in zip(values, claim.value, strict=True)))


def _error(relation: Relation, ours: float, paper: float) -> float:
    if not math.isfinite(ours):
        return math.inf
    if (relation is Relation.at_least and ours >= paper) or (relation is Relation.at_most and ours <= paper):
        return 0.0
    return abs(ours - paper) / abs(paper) if paper else abs(ours)
