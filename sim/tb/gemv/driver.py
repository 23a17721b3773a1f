# SPDX-License-Identifier: Apache-2.0
"""From a case of gemv to what goes in."""

from __future__ import annotations

from tb.common.kernel import Case, beats
from tb.common.session import Job


def job(case: Case) -> Job:
    scalars = {name: case[name] & 0xFFFFFFFF for name in ("mode", "width", "tokens")}
    return Job(case["label"], scalars, {"operands": beats(case["operands"]), "beats": beats(case["beats"])})
