# SPDX-License-Identifier: Apache-2.0
"""Kernels that take a job in memory and leave results in the same memory: inputs, results, their comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tb.common.kernel import BEAT_BYTES, Case, Scoreboard, expect
from tb.common.session import Job, Outcome


def memory_job(case: Case, pointers: Sequence[str]) -> Job:
    """The inputs of a case: one memory, at whose begin all `pointers` point."""
    memory = case["memory"].tobytes()
    scalars = {"job": case["job"] % 2**64, "memory_beats": len(memory) // BEAT_BYTES}
    return Job(case["label"], scalars, buffers={"memory": memory}, pointers=dict.fromkeys(pointers, "memory"))


@dataclass(frozen=True)
class Done:
    """The whole memory, so that a stray write is seen wherever it lands."""

    status: int
    bus_error: int
    memory: np.ndarray


def observe(outcome: Outcome) -> Done:
    """The results in registers and memory."""
    registers = outcome.registers
    return Done(registers["ap_return"], registers["bus_error"], outcome.buffers["memory"])


class MemoryJobScoreboard(Scoreboard):
    """`refusals`: the status bits of a refused job. `largest_bytes`: of a memory that RTL runs.

    csim has hundreds or thousands of refused jobs; RTL runs `refused_of_each` of each status word, or
    `refused_of_each_small` in a small run.
    """

    refusals: ClassVar[int]
    largest_bytes: ClassVar[int]
    refused_of_each: ClassVar[int]
    refused_of_each_small: ClassVar[int]

    def select(self, cases: Iterable[Case], small: bool) -> Iterable[Case]:
        """The cases that RTL runs."""
        refused: dict[int, int] = {}
        for case in cases:
            if case["memory"].size > self.largest_bytes:
                continue
            if self.refused(case):
                refused[case["status"]] = refused.get(case["status"], 0) + 1
                if refused[case["status"]] > (self.refused_of_each_small if small else self.refused_of_each):
                    continue
            yield case

    def refused(self, case: Case) -> bool:
        """See Scoreboard."""
        return bool(case["status"] & self.refusals)

    def check(self, case: Case, job: Job, outcome: Outcome) -> None:
        """See Scoreboard."""
        got = observe(outcome)
        expect("status", got.status, case["status"], case)
        expect("bus_error", got.bus_error, 0, case)
        expect("memory", got.memory, case["expected"], case)
