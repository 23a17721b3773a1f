# SPDX-License-Identifier: Apache-2.0
"""The expected results of group_choice, for the group size of its top."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from csim import group_choice
from csim.group_choice import get_job
from golden.abi import CHOICE_HEAD_DIMS, UNIT_TOKENS, Status
from rtl.kernels import Top
from tb.common.kernel import Case, Scoreboard, expect
from tb.common.report import Coverage
from tb.common.session import Job, Outcome
from tb.group_choice.monitor import observe

_REFUSALS = (
    Status.BAD_VERSION,
    Status.BAD_GROUP,
    Status.BAD_HEAD_DIM,
    Status.BAD_LENGTH,
    Status.BAD_K,
    Status.BAD_UNIT,
    Status.BAD_EXPONENT,
    Status.BAD_SCALE,
    Status.UNALIGNED,
    Status.OUT_OF_RANGE,
)
_REFUSED_OF_EACH = 8  # csim has hundreds of refused jobs; RTL runs this many of each status word
_LARGEST_BYTES = 2**18
_SIZES = (32, 96, 512)


class GroupChoice(Scoreboard):
    def __init__(self, group: int) -> None:
        self.group = group

    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        """Cases of the group size. Of refused jobs, only some with each status word are run."""
        refused: dict[int, int] = {}
        for case in (dict(case) for case in group_choice.cases(np.random.default_rng(seed), small)):
            if case["top"] != self.group or case["memory"].size > _LARGEST_BYTES:
                continue
            if self.refused(case):
                refused[case["status"]] = refused.get(case["status"], 0) + 1
                if refused[case["status"]] > (1 if small else _REFUSED_OF_EACH):
                    continue
            yield case

    def refused(self, case: Case) -> bool:
        return bool(case["status"] & group_choice.REFUSALS)

    def check(self, case: Case, job: Job, outcome: Outcome) -> None:
        got = observe(outcome)
        expect("status", got.status, case["status"], case)
        expect("bus_error", got.bus_error, 0, case)
        expect("memory", got.memory, case["expected"], case)

    def variables(self, case: Case, job: Job, outcome: Outcome | None = None) -> dict[str, int]:
        fields = get_job(case["memory"], case["job"])
        tokens, unit = int(fields["tokens"]), int(fields["unit"])
        sizes = {"tokens": tokens, "tail": int(fields["tail_tokens"]), "units": -(-tokens // unit)}
        return {**sizes, "d": int(fields["head_dim"]), "g": self.group}

    def declare(self, coverage: Coverage) -> None:
        coverage.declare("tokens", (*(f"up to {size}" for size in _SIZES), "more"))
        coverage.declare("inputs", ("plain", "mask", "tail", "mask, tail"))
        coverage.declare("head dimension", CHOICE_HEAD_DIMS)
        coverage.declare("unit", UNIT_TOKENS)
        coverage.declare("status", ("OK", "NON_FINITE", "EMPTY", *(status.name for status in _REFUSALS)))

    def cover(self, case: Case, coverage: Coverage) -> None:
        for status in Status:
            if case["status"] & status and status in (*_REFUSALS, Status.NON_FINITE, Status.EMPTY):
                coverage.count("status", status.name, 1)
        if self.refused(case):
            return
        if case["status"] == 0:
            coverage.hit("status", "OK")
        fields = get_job(case["memory"], case["job"])
        tokens = int(fields["tokens"])
        coverage.hit("tokens", next((f"up to {size}" for size in _SIZES if tokens <= size), "more"))
        parts = {"mask": fields["valid"], "tail": fields["tail_tokens"]}
        coverage.hit("inputs", ", ".join(name for name, used in parts.items() if used) or "plain")
        coverage.count("head dimension", str(fields["head_dim"]), 1)
        coverage.count("unit", str(fields["unit"]), 1)


def make(top: Top) -> GroupChoice:
    return GroupChoice(int(top.name.rsplit("_g", 1)[1]))
