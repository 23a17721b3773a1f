"""How much of the softmax a policy has left unread, by the drive's estimate."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray


class UnreadMass:
    """The mean of all estimates of a step counts as the step's; of the steps, mean and worst are recorded.

    An estimate is the share of the softmax of one query head that was not read (docs/arithmetic.md, groups). Drives'
    threads add at the same time, for one step after the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._step = -1
        self._sum = self._total = self._worst = 0.0
        self._count = self._steps = 0

    def add(self, step: int, left: NDArray[np.float32]) -> None:
        """Estimates for any heads, in the step that computes behind `step` tokens."""
        with self._lock:
            if step != self._step:
                self._end_step()
                self._step = step
            self._sum += float(left.sum(dtype=np.float64))
            self._count += left.size

    def summary(self) -> dict[str, float]:
        """`steps`, and `mean` and `worst` of them in 0 to 1."""
        with self._lock:
            self._end_step()
            return {"steps": self._steps, "mean": self._total / max(self._steps, 1), "worst": self._worst}

    def _end_step(self) -> None:
        if self._count:
            share = self._sum / self._count
            self._steps += 1
            self._total += share
            self._worst = max(self._worst, share)
        self._sum, self._count, self._step = 0.0, 0, -1
