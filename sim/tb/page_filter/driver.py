# SPDX-License-Identifier: Apache-2.0
"""Turns a case of page_filter into the kernel's inputs."""

from __future__ import annotations

from tb.common.kernel import Case, beats
from tb.common.session import Job

SCALARS = ("page_count", "rows", "row_bytes", "page_bytes")


def job(case: Case) -> Job:
    words = {"pages": beats(case["pages"]), "bitmap": beats(case["bitmap"])}
    return Job(case["label"], {name: case[name] & 0xFFFFFFFF for name in SCALARS}, words)
