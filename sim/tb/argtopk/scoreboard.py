# SPDX-License-Identifier: Apache-2.0
"""The expected results of argtopk."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from csim import argtopk
from golden.abi import INSERTION_K, INSERTION_KEYS, KeyType, Status
from rtl.kernels import Top
from tb.argtopk.driver import UNWRITTEN
from tb.argtopk.monitor import observe
from tb.common.kernel import Case, Scoreboard, expect
from tb.common.report import Coverage
from tb.common.session import Job, Outcome

MOST_DIGITS = {KeyType.BINARY32: 4, KeyType.MAGNITUDE16: 2}
_STATUS = (Status.BAD_LENGTH, Status.BAD_K, Status.NON_FINITE)


def inserts(case: Case) -> bool:
    """True if the kernel uses the insertion array for this case."""
    return bool(case["k"] <= INSERTION_K and case["n"] <= INSERTION_KEYS)


class Argtopk(Scoreboard):
    def cases(self, seed: int, small: bool) -> Iterable[Case]:
        return [dict(case) for case in argtopk.cases(np.random.default_rng(seed), small)]

    def refused(self, case: Case) -> bool:
        return bool(case["status"] & (Status.BAD_LENGTH | Status.BAD_K))

    def check(self, case: Case, job: Job, outcome: Outcome) -> None:
        got = observe(outcome)
        expect("status", got.status, case["status"], case)
        expect("bus_error", got.bus_error, 0, case)
        expect("keys", got.keys, np.frombuffer(job.buffers["keys"], np.uint8), case)
        for name in ("indices", "bitmap"):
            expect(name, getattr(got, name), self._left(case[name], len(job.buffers[name])), case)
        if not self.refused(case):
            most = 1 if inserts(case) else MOST_DIGITS[KeyType(case["key_type"])]
            assert 2 <= got.passes <= 1 + most, f"{case['label']}: {got.passes} passes over the keys"

    @staticmethod
    def _left(expected: np.ndarray, size: int) -> np.ndarray:
        """The content of a buffer after the job: results in whole beats; the other bytes are unchanged."""
        data = np.ascontiguousarray(expected).view(np.uint8)
        whole = -(-data.size // 64) * 64
        return np.concatenate([data, np.zeros(whole - data.size, np.uint8), np.full(size - whole, UNWRITTEN, np.uint8)])

    def variables(self, case: Case, job: Job, outcome: Outcome | None = None) -> dict[str, int]:
        """`digits` comes from the number of passes over the keys. Before a job it is the most possible."""
        most = MOST_DIGITS[KeyType(case["key_type"])]
        return {**job.scalars, "digits": most if outcome is None else observe(outcome).passes - 1}

    def round_trips(self, case: Case, outcome: Outcome) -> int:
        """Each pass waits for its first keys. The last one also waits for the response to its last write."""
        return observe(outcome).passes + 1

    def declare(self, coverage: Coverage) -> None:
        coverage.declare("algorithm", (f"{kind.name}, {how}" for kind in KeyType for how in ("insertion", "radix")))
        coverage.declare("keys", ("one beat", "one page", "more"))
        coverage.declare("last beat of keys", ("full", "partial"))
        coverage.declare("last word of bitmap", ("full", "partial"))
        coverage.declare("status", ("OK", *(status.name for status in _STATUS)))

        longest = {"gmem0 read": 64, "gmem1 write": 16, "gmem2 write": 16}  # keys, indices, bitmap
        for port, words in longest.items():
            sizes = (f"{words} words", "less", "less, cut at 4 KB")
            coverage.declare("bursts", (f"{port}, {size}" for size in sizes))

    def cover(self, case: Case, coverage: Coverage) -> None:
        for status in _STATUS:
            if case["status"] & status:
                coverage.hit("status", status.name)
        if case["status"]:
            return
        coverage.hit("status", "OK")
        n, kind = case["n"], KeyType(case["key_type"])
        coverage.hit("algorithm", f"{kind.name}, {'insertion' if inserts(case) else 'radix'}")
        size = n * case["keys"].itemsize
        coverage.hit("keys", "one beat" if size <= 64 else "one page" if size <= 4096 else "more")
        coverage.hit("last beat of keys", "partial" if size % 64 else "full")
        coverage.hit("last word of bitmap", "partial" if n % 512 else "full")


def make(top: Top) -> Argtopk:
    return Argtopk()
