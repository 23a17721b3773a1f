# SPDX-License-Identifier: Apache-2.0
"""Turns a case of ffn into the kernel's inputs."""

from __future__ import annotations

from tb.common.kernel import Case, beats
from tb.common.session import Job


def job(case: Case) -> Job:
    scalars = {name: case[name] & 0xFFFFFFFF for name in ("activation", "matrices", "hidden", "neurons")}
    return Job(case["label"], scalars, {name: beats(case[name]) for name in ("inputs", "activations", "rows")})
