# SPDX-License-Identifier: Apache-2.0
"""Turns a case of attention_codes into the kernel's inputs."""

from __future__ import annotations

from tb.common.kernel import Case
from tb.common.memory_job import memory_job
from tb.common.session import Job

POINTERS = ("kv", "steps", "io", "out")


def job(case: Case) -> Job:
    return memory_job(case, POINTERS)
