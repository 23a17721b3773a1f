# SPDX-License-Identifier: Apache-2.0
"""Turns a case of softmax into the kernel's inputs."""

from __future__ import annotations

from tb.common.kernel import Case, beats
from tb.common.session import Job


def job(case: Case) -> Job:
    scalars = {"dense": case["dense_count"], "tail": case["tail_count"], "masked": case["masked"]}
    words = {
        "dense_scores": case["dense"].view("uint32").tolist(),
        "valid": beats(case["valid"]),
        "tail_scores": case["tail"].view("uint32").tolist(),
    }
    return Job(case["label"], {name: value & 0xFFFFFFFF for name, value in scalars.items()}, words)
