# SPDX-License-Identifier: Apache-2.0
"""The expected results of gemv, for the group size of its top."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from csim import gemv
from golden.abi import Status
from rtl.kernels import Top
from tb.common.kernel import Case, Scoreboard, expect
from tb.common.report import Coverage
from tb.common.session import Job, Outcome
from tb.gemv.monitor import observe

_MODES = ("rows", "columns", "accumulate")
_REFUSALS = (Status.BAD_MODE, Status.BAD_HEAD_DIM, Status.BAD_R, Status.BAD_LENGTH)


class Gemv(Scoreboard):
    def __init__(self, group: int) -> None:
        self.group = group

    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        """Cases of the group size. Refused calls give the same result for every group size."""
        for case in (dict(case) for case in gemv.cases(np.random.default_rng(seed), small)):
            if case["group"] == self.group or self.refused(case):
                yield case

    def refused(self, case: Case) -> bool:
        return any(case["status"] & status for status in _REFUSALS)

    def check(self, case: Case, job: Job, outcome: Outcome) -> None:
        status, results = observe(outcome)
        expect("status", status, case["status"], case)
        expect("beats of results", results.size // 8, case["result_beats"], case)
        if "results" in case:
            expect("results", results, case["results"], case)

    def variables(self, case: Case, job: Job, outcome: Outcome | None = None) -> dict[str, int]:
        return {**job.scalars, "g": self.group}

    def declare(self, coverage: Coverage) -> None:
        coverage.declare("width, rows and accumulate", gemv.HEAD_DIMS)
        coverage.declare("tokens", (f"{mode}, {part}" for mode in _MODES for part in ("one", "below 32", "32 or more")))
        coverage.declare("columns modulo 32", ("0", "other"))
        coverage.declare("refusal", (status.name for status in _REFUSALS))

    def cover(self, case: Case, coverage: Coverage) -> None:
        for status in _REFUSALS:
            if case["status"] & status:
                coverage.hit("refusal", status.name)
        if self.refused(case):
            return
        tokens, mode = case["tokens"], _MODES[case["mode"]]
        coverage.hit("tokens", f"{mode}, {'one' if tokens == 1 else 'below 32' if tokens < 32 else '32 or more'}")
        if mode == "columns":
            coverage.hit("columns modulo 32", "other" if case["width"] % 32 else 0)
        else:
            coverage.hit("width, rows and accumulate", case["width"])


def make(top: Top) -> Gemv:
    return Gemv(int(top.name.rsplit("_g", 1)[1]))
