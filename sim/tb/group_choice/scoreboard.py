# SPDX-License-Identifier: Apache-2.0
"""The expected results of group_choice, for the group size of its top."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from csim import group_choice
from csim.group_choice import get_job
from golden.abi import CHOICE_HEAD_DIMS, UNIT_TOKENS, Status
from rtl.kernels import Top
from tb.common.kernel import Case
from tb.common.memory_job import MemoryJobScoreboard
from tb.common.report import Coverage
from tb.common.session import Job, Outcome

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
_SIZES = (32, 96, 512)


class GroupChoice(MemoryJobScoreboard):
    refusals = group_choice.REFUSALS
    largest_bytes = 2**18
    refused_of_each, refused_of_each_small = 8, 1

    def __init__(self, group: int) -> None:
        self.group = group

    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        """Cases of the group size. Of refused jobs, only some with each status word are run."""
        found = (dict(case) for case in group_choice.cases(np.random.default_rng(seed), small))
        return self.select((case for case in found if case["top"] == self.group), small)

    def variables(self, case: Case, job: Job, outcome: Outcome | None = None) -> dict[str, int]:
        fields = get_job(case["memory"], case["job"])
        tokens, unit = int(fields["tokens"]), int(fields["unit"])
        sizes = {"tokens": tokens, "inline_tokens": int(fields["inline_tokens"]), "units": -(-tokens // unit)}
        return {**sizes, "d": int(fields["head_dim"]), "g": self.group}

    def declare(self, coverage: Coverage) -> None:
        coverage.declare("tokens", (*(f"up to {size}" for size in _SIZES), "more"))
        coverage.declare("inputs", ("plain", "mask", "inline", "mask, inline"))
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
        parts = {"mask": fields["valid"], "inline": fields["inline_tokens"]}
        coverage.hit("inputs", ", ".join(name for name, used in parts.items() if used) or "plain")
        coverage.count("head dimension", str(fields["head_dim"]), 1)
        coverage.count("unit", str(fields["unit"]), 1)


def make(top: Top) -> GroupChoice:
    return GroupChoice(int(top.name.rsplit("_g", 1)[1]))
