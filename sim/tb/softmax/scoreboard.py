# SPDX-License-Identifier: Apache-2.0
"""The expected results of softmax."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from csim import softmax
from golden.abi import Status
from rtl.kernels import Top
from tb.common.kernel import Case, Scoreboard, expect
from tb.common.report import Coverage
from tb.common.session import Job, Outcome
from tb.softmax.monitor import observe

_SIZES = (1, 2, 32, 33, 512, 513, 4096)  # upper ends of the bins, the last one open

_SHORT = 140  # scores


def _is_short(case: Case) -> bool:
    return case["dense_count"] + case["tail_count"] <= _SHORT or case["label"].startswith(("no mask", "mask 0.5, tail"))


class Softmax(Scoreboard):
    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        """In the reduced set, one job of each length above a few rounds of the pipeline."""
        found = [dict(case) for case in softmax.cases(np.random.default_rng(seed), small)]
        return [case for case in found if not small or self.refused(case) or _is_short(case)]

    def refused(self, case: Case) -> bool:
        return bool(case["status"] & Status.BAD_LENGTH)

    def check(self, case: Case, job: Job, outcome: Outcome) -> None:
        got = observe(outcome)
        expect("status", got.status, case["status"], case)
        expect("max", got.max, case["max"], case)
        expect("sum", got.sum, case["sum"], case)
        expect("p", got.p, np.zeros(0) if self.refused(case) else case["p"], case)

    def declare(self, coverage: Coverage) -> None:
        coverage.declare("scores", (f"up to {size}" for size in _SIZES[:-1]))
        coverage.declare("scores", ("more",))
        coverage.declare("inputs", ("dense", "dense, mask", "dense, tail", "dense, mask, tail", "tail"))
        coverage.declare("status", ("OK", "EMPTY", "BAD_LENGTH"))
        coverage.declare("scores modulo 2", (0, 1))  # two scores share a word of memory

    def cover(self, case: Case, coverage: Coverage) -> None:
        coverage.hit("status", Status(case["status"]).name if case["status"] else "OK")
        if self.refused(case):
            return
        dense, tail = case["dense_count"], case["tail_count"]
        size = next((f"up to {size}" for size in _SIZES[:-1] if dense + tail <= size), "more")
        coverage.hit("scores", size)
        parts = {"dense": dense > 0, "mask": dense > 0 and case["masked"], "tail": tail > 0}
        coverage.hit("inputs", ", ".join(name for name, used in parts.items() if used))
        coverage.hit("scores modulo 2", (dense + tail) % 2)


def make(top: Top) -> Softmax:
    return Softmax()
