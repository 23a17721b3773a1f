# SPDX-License-Identifier: Apache-2.0
"""Turns a case of group_choice into the kernel's inputs: one memory, at whose begin all pointers point."""

from __future__ import annotations

from tb.common.kernel import BEAT_BYTES, Case
from tb.common.session import Job

POINTERS = ("index", "io", "out")


def job(case: Case) -> Job:
    memory = case["memory"].tobytes()
    scalars = {"job": case["job"] % 2**64, "memory_beats": len(memory) // BEAT_BYTES}
    return Job(case["label"], scalars, buffers={"memory": memory}, pointers=dict.fromkeys(POINTERS, "memory"))
