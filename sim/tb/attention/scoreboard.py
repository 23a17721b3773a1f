# SPDX-License-Identifier: Apache-2.0
"""The expected results of attention, for the group size of its top."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

import golden
from csim import attention
from csim.attention_images import get_job
from golden.abi import AttentionJob, Mode, Status
from rtl.kernels import Top
from tb.common.kernel import Case
from tb.common.memory_job import MemoryJobScoreboard
from tb.common.report import Coverage
from tb.common.session import Job, Outcome

_REFUSALS = (
    Status.BAD_VERSION,
    Status.BAD_MODE,
    Status.BAD_GROUP,
    Status.BAD_HEAD_DIM,
    Status.BAD_LENGTH,
    Status.BAD_R,
    Status.BAD_K,
    Status.BAD_SCALE,
    Status.UNALIGNED,
    Status.OUT_OF_RANGE,
)
_SPARF_REFUSALS = (Status.BAD_R, Status.BAD_K)
_SIZES = (1, 16, 17, 128, 129)


class Attention(MemoryJobScoreboard):
    refusals = attention.REFUSALS
    largest_bytes = 2**22
    refused_of_each, refused_of_each_small = 12, 2

    def __init__(self, group: int, exact: bool) -> None:
        self.group = group
        self.exact = exact  # True for the top without SparF
        self.modes = golden.job.EXACT_MODES if exact else golden.job.ALL_MODES

    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        """Cases of the top. Of refused jobs, only some with each status word are run."""
        found = (dict(case) for case in attention.cases(np.random.default_rng(seed), small))
        return self.select((c for c in found if (c["top"], c["exact"]) == (self.group, self.exact)), small)

    def variables(self, case: Case, job: Job, outcome: Outcome | None = None) -> dict[str, int]:
        """`digits` is the most possible, because the passes of the radix select cannot be seen from outside."""
        fields = get_job(case["memory"], case["job"])
        tokens = {"tokens": int(fields["tokens"]), "inline_tokens": int(fields["inline_tokens"])}
        names = {"mode": "mode", "d": "head_dim", "r": "r", "k_top": "k_top"}
        rest = {name: int(fields[place]) for name, place in names.items()}
        digits = 2 if fields["mode"] == Mode.SPARF_ROWS else 4
        return {**rest, **tokens, "g": self.group, "digits": digits}

    def declare(self, coverage: Coverage) -> None:
        coverage.declare("mode", (mode.name for mode in Mode if mode in self.modes))
        coverage.declare("tokens", ("none", *(f"up to {size}" for size in _SIZES), "more"))
        coverage.declare("inputs", ("plain", "mask", "inline", "mask, inline"))
        coverage.declare("head dimension", attention.ODD_HEAD_DIMS if self.group == 1 else ())
        coverage.declare("head dimension", (64, 128))
        refusals = (status.name for status in _REFUSALS if not self.exact or status not in _SPARF_REFUSALS)
        coverage.declare("status", ("OK", "NON_FINITE", "EMPTY", *refusals))

    def cover(self, case: Case, coverage: Coverage) -> None:
        for status in Status:
            if case["status"] & status:
                coverage.count("status", status.name, 1)
        if self.refused(case):
            return
        if case["status"] == 0:
            coverage.hit("status", "OK")
        fields: AttentionJob = get_job(case["memory"], case["job"])
        coverage.hit("mode", Mode(fields["mode"]).name)
        tokens = int(fields["tokens"])
        size = next((f"up to {size}" for size in _SIZES if tokens <= size), "more")
        coverage.hit("tokens", size if tokens else "none")
        parts = {"mask": fields["valid"], "inline": fields["inline_tokens"]}
        coverage.hit("inputs", ", ".join(name for name, used in parts.items() if used) or "plain")
        coverage.count("head dimension", str(fields["head_dim"]), 1)


def make(top: Top) -> Attention:
    return Attention(int(top.name.rsplit("_g", 1)[1]), "exact" in top.name)
