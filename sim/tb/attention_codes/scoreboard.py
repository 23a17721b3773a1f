# SPDX-License-Identifier: Apache-2.0
"""The expected results of attention_codes, for the width of codes and the group size of its top."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from csim import attention_codes
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
    Status.BAD_SCALE,
    Status.UNALIGNED,
    Status.OUT_OF_RANGE,
)
_SIZES = (1, 33, 513)


class AttentionCodes(MemoryJobScoreboard):
    refusals = attention_codes.REFUSALS
    largest_bytes = 2**20
    refused_of_each, refused_of_each_small = 8, 1

    def __init__(self, bits: int, group: int) -> None:
        self.bits, self.group = bits, group

    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        """Cases of the top. Of refused jobs, only some with each status word are run."""
        found = (dict(case) for case in attention_codes.cases(np.random.default_rng(seed), small))
        own = (case for case in found if (case["bits"], case["top"]) == (self.bits, self.group))
        return self.select(own, small)

    def variables(self, case: Case, job: Job, outcome: Outcome | None = None) -> dict[str, int]:
        fields = get_job(case["memory"], case["job"])
        names = {"mode": "mode", "d": "head_dim", "tokens": "tokens", "inline_tokens": "inline_tokens"}
        return {**{name: int(fields[place]) for name, place in names.items()}, "g": self.group, "bits": self.bits}

    def declare(self, coverage: Coverage) -> None:
        coverage.declare("mode", (mode.name for mode in attention_codes.MODES))
        coverage.declare("tokens", ("none", *(f"up to {size}" for size in _SIZES), "more"))
        coverage.declare("inputs", ("plain", "mask", "inline", "mask, inline"))
        coverage.declare("head dimension", attention_codes.HEAD_DIMS[self.bits])
        coverage.declare("status", ("OK", "NON_FINITE", "EMPTY", *(status.name for status in _REFUSALS)))

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


def make(top: Top) -> AttentionCodes:
    return AttentionCodes(attention_codes.bits_of(top.name), int(top.name.rsplit("_g", 1)[1]))
