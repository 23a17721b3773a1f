# SPDX-License-Identifier: Apache-2.0
"""The expected results of ffn."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from csim import ffn
from golden.abi import Status
from rtl.kernels import Top
from tb.common.kernel import Case, Scoreboard, expect
from tb.common.report import Coverage
from tb.common.session import Job, Outcome
from tb.gemv.monitor import observe

_REFUSALS = (Status.BAD_MODE, Status.BAD_HEAD_DIM, Status.BAD_LENGTH)


class Ffn(Scoreboard):
    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        return (dict(case) for case in ffn.cases(np.random.default_rng(seed), small))

    def refused(self, case: Case) -> bool:
        return any(case["status"] & status for status in _REFUSALS)

    def check(self, case: Case, job: Job, outcome: Outcome) -> None:
        status, results = observe(outcome)
        expect("status", status, case["status"], case)
        expect("beats of results", results.size // 8, case["result_beats"], case)
        if "results" in case:
            expect("results", results, case["results"], case)

    def variables(self, case: Case, job: Job, outcome: Outcome | None = None) -> dict[str, int]:
        return job.scalars

    def declare(self, coverage: Coverage) -> None:
        coverage.declare("kind", (f"{activation.name}, {matrices}" for activation, matrices in ffn.KINDS))
        coverage.declare("hidden", ffn.HIDDEN)
        coverage.declare("neurons modulo 32", ("0", "other"))
        coverage.declare("not finite", ("no", "yes"))
        coverage.declare("refusal", (status.name for status in _REFUSALS))

    def cover(self, case: Case, coverage: Coverage) -> None:
        for status in _REFUSALS:
            if case["status"] & status:
                coverage.hit("refusal", status.name)
        if self.refused(case):
            return
        coverage.hit("kind", f"{ffn.Activation(case['activation']).name}, {case['matrices']}")
        coverage.hit("hidden", case["hidden"])
        coverage.hit("neurons modulo 32", "other" if case["neurons"] % 32 else "0")
        coverage.hit("not finite", "yes" if case["status"] else "no")


def make(top: Top) -> Ffn:
    return Ffn()
