# SPDX-License-Identifier: Apache-2.0
"""The interface that each kernel's folder implements for the tests, and helpers that lay out words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from tb.common.report import Coverage
from tb.common.session import Job, Outcome

Case: TypeAlias = dict[str, Any]  # the arrays and numbers of a csim case, by name

BEAT_BYTES = 64


class Scoreboard(ABC):
    """Compares results with the golden model's, which are part of csim's cases. Nothing else uses the golden model."""

    @abstractmethod
    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        """The cases with their expected results."""

    @abstractmethod
    def refused(self, case: Case) -> bool:
        """True if the kernel must refuse the case and read none of its streams."""

    @abstractmethod
    def check(self, case: Case, job: Job, outcome: Outcome) -> None:
        """Raises AssertionError if the outcome differs from the expected one."""

    def variables(self, case: Case, job: Job, outcome: Outcome | None = None) -> dict[str, int]:
        """The variables of the formula in kernel.toml. Without an outcome they may be upper bounds."""
        return job.scalars

    def round_trips(self, case: Case, outcome: Outcome) -> int:
        """How often a job waits for the latency of memory, which the formula does not contain."""
        return 0

    @abstractmethod
    def declare(self, coverage: Coverage) -> None:
        """Declare the bins that `cover` counts."""

    @abstractmethod
    def cover(self, case: Case, coverage: Coverage) -> None:
        """Count the features that a case exercises."""


def beats(data: np.ndarray) -> list[int]:
    """The bytes of an array as numbers, one for each beat; the last beat is padded with zeros."""
    content = np.ascontiguousarray(data).tobytes()
    content += bytes(-len(content) % BEAT_BYTES)
    return [int.from_bytes(content[i : i + BEAT_BYTES], "little") for i in range(0, len(content), BEAT_BYTES)]


def expect(what: str, got: object, expected: object, case: Case) -> None:
    """Raises AssertionError, with the label of the case, if two numbers or arrays differ."""
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
