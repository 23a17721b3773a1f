"""Series of modelled steps."""

from __future__ import annotations

from collections.abc import Sequence

from kvdrive.study.figure import Series
from kvdrive.study.model.decode import Step

_SEEN = 0.002  # of a step


def rate(step: Step | None) -> float | None:
    """Tokens per second; None where the system cannot run."""
    return None if step is None else step.throughput


def over(step: Step | None, base: Step) -> float | None:
    """Throughput over another step's; None where the system cannot run."""
    return None if step is None else step.throughput / base.throughput


def shares(kinds: Sequence[str], steps: Sequence[Step]) -> list[Series]:
    """Percent of each step that its parts hold up; parts that can be seen."""
    seen = [kind for kind in kinds if any(step.share(kind) > _SEEN for step in steps)]
    return [Series(kind, [100 * step.share(kind) for step in steps]) for kind in seen]
