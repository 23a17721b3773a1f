# SPDX-License-Identifier: Apache-2.0
"""Turns the words of page_filter into rows and reports (hls/page_filter/job.hpp)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb.common.session import Outcome

_BEAT = (1 << 512) - 1


@dataclass(frozen=True)
class Filtered:
    """`rows`: the kept rows as bytes. `status`, `seen` and `kept`: from the last report. `needed`: a flag per page."""

    status: int
    rows: np.ndarray
    reported_status: int
    seen: int
    kept: int
    needed: np.ndarray


def observe(outcome: Outcome) -> Filtered:
    """Raises AssertionError if the words break their format: full beats, zeros behind the last row, marks."""
    content = bytearray()
    filtered, reports = outcome.words["filtered"], outcome.words["reports"]
    for number, word in enumerate(filtered):
        valid, last = word >> 512 & 0x7F, word >> 520 & 1
        assert last == (number == len(filtered) - 1), "the mark of the last beat is on another"
        assert valid == 64 or last, f"beat {number} is not full, though not the last"
        data = (word & _BEAT).to_bytes(64, "little")
        assert not any(data[valid:]), "bytes behind the last row are not zero"
        content += data[:valid]
    assert filtered, "no last beat"
    assert reports, "no last report"
    for number, report in enumerate(reports):
        assert report >> 97 == (number == len(reports) - 1), "the mark of the last report is on another"
    lanes = [reports[-1] >> 32 * i & 0xFFFFFFFF for i in range(3)]
    needed = np.array([report >> 96 & 1 for report in reports], np.uint8)
    return Filtered(outcome.registers["ap_return"], np.frombuffer(bytes(content), np.uint8), *lanes, needed)
