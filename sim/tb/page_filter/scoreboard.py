# SPDX-License-Identifier: Apache-2.0
"""The expected results of page_filter."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from csim import page_filter
from golden.abi import FILTER_PAGE_BYTES, Status
from rtl.kernels import Top
from tb.common.kernel import Case, Scoreboard, expect
from tb.common.report import Coverage
from tb.common.session import Job, Outcome
from tb.page_filter.monitor import observe

_REFUSALS = (Status.BAD_ROW_BYTES, Status.BAD_PAGE_BYTES, Status.BAD_LENGTH)


class PageFilter(Scoreboard):
    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        return [dict(case) for case in page_filter.cases(np.random.default_rng(seed), small)]

    def refused(self, case: Case) -> bool:
        return case["status"] != 0

    def check(self, case: Case, job: Job, outcome: Outcome) -> None:
        got = observe(outcome)
        expect("status", got.status, case["status"], case)
        expect("reported status", got.reported_status, case["status"], case)
        expect("rows", got.rows, case["kept"], case)
        expect("page_needed", got.needed, case["page_needed"], case)
        expect("rows_seen", got.seen, case["rows_seen"], case)
        expect("rows_kept", got.kept, case["rows_kept"], case)

    def declare(self, coverage: Coverage) -> None:
        coverage.declare("row bytes", page_filter.ROW_BYTES)
        coverage.declare("page bytes", FILTER_PAGE_BYTES)
        coverage.declare("bitmap", ("nothing kept", "some kept", "all kept"))
        coverage.declare("rows modulo 16", range(16))
        coverage.declare("bitmap beats", ("1", "2", "more"))
        coverage.declare("last beat", ("empty", "half", "full"))
        coverage.declare("refusal", (status.name for status in _REFUSALS))

    def cover(self, case: Case, coverage: Coverage) -> None:
        for status in _REFUSALS:
            if case["status"] & status:
                coverage.hit("refusal", status.name)
        if case["status"]:
            return
        coverage.hit("row bytes", case["row_bytes"])
        coverage.hit("page bytes", case["page_bytes"])
        kept, rows = case["rows_kept"], case["rows"]
        coverage.hit("bitmap", "nothing kept" if kept == 0 else "all kept" if kept == rows else "some kept")
        coverage.hit("rows modulo 16", rows % 16)
        bitmap_beats = -(-rows // 512)
        coverage.hit("bitmap beats", bitmap_beats if bitmap_beats < 3 else "more")
        rest = case["kept"].size % 64
        coverage.hit("last beat", "half" if rest else "full" if kept else "empty")


def make(top: Top) -> PageFilter:
    return PageFilter()
