# SPDX-License-Identifier: Apache-2.0
"""What the folder of a kernel gives to the tests, and helpers to lay out words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from tb.common.report import Coverage
from tb.common.session import Job, Outcome

Case: TypeAlias = dict[str, Any]  # of csim, by name

BEAT_BYTES = 64


class Scoreboard(ABC):
    """The only place where the golden model is used: it has computed what the cases of csim expect."""

    @abstractmethod
    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        """Jobs with what they must give."""

    @abstractmethod
    def refused(self, case: Case) -> bool:
        """Whether the kernel must leave its inputs alone."""

    @abstractmethod
    def check(self, case: Case, job: Job, outcome: Outcome) -> None:
        """Raises AssertionError where an outcome is not what the case expects."""

    def variables(self, case: Case, job: Job, outcome: Outcome | None = None) -> dict[str, int]:
        """Those of the formula in kernel.toml; without an outcome they may be upper bounds."""
        return job.scalars

    def round_trips(self, case: Case, outcome: Outcome) -> int:
        """How often a job waits for the latency of memory, which the formula leaves out."""
        return 0

    @abstractmethod
    def declare(self, coverage: Coverage) -> None:
        """Names the bins that `cover` counts."""

    @abstractmethod
    def cover(self, case: Case, coverage: Coverage) -> None:
        """Counts what a case has exercised."""


def beats(data: np.ndarray) -> list[int]:
    """The bytes of an array as whole beats, zero padded, as numbers."""
    content = np.ascontiguousarray(data).tobytes()
    content += bytes(-len(content) % BEAT_BYTES)
    return [int.from_bytes(content[i : i + BEAT_BYTES], "little") for i in range(0, len(content), BEAT_BYTES)]


def expect(what: str, got: object, expected: object, case: Case) -> None:
    """Raises AssertionError, with the label of the case, where two numbers or arrays are not the same."""
    if isinstance(expected, np.ndarray):
        got = np.asarray(got)
        if got.size != expected.size:
            raise AssertionError(f"{case['label']}: {what} has {got.size} values, {expected.size} expected")
        different = np.flatnonzero(got.reshape(-1) != expected.reshape(-1))
        if different.size:
            at = different[0]
            raise AssertionError(
                f"{case['label']}: {what}[{at}] is {got.reshape(-1)[at]}, {expected.reshape(-1)[at]} expected "
                f"({different.size} of {expected.size} differ)"
            )
    elif got != expected:
        raise AssertionError(f"{case['label']}: {what} is {got}, {expected} expected")
