"""The machine that measures."""

from __future__ import annotations

import math
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvdrive.perf.stored_rates import processor


@dataclass(frozen=True)
class Machine:
    """`processor`: its name; empty where an older table does not say it."""

    processor: str
    cores: int

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        return cls(processor(), os.cpu_count() or 1)

    @property
    def name(self) -> str:
        """Of its files of results."""
        return re.sub(r"\W+", "-", f"{self.processor} {self.cores} cores".lower()) if self.processor else "not-recorded"

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores" if self.processor else "not recorded"


def memory_bandwidth(threads: int) -> float:
    """Bytes per second of a plain read; the best of a few."""
    data = np.ones(1 << 27, np.uint64)
    parts = np.array_split(data, threads)
    best = math.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(np.sum, parts))
            best = min(best, time.perf_counter() - start)
    return data.nbytes / best


def cache_bytes() -> int:
    """Size of the last-level cache in bytes; 0 if the system does not report it."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((int(size.read_text().strip().removesuffix("K")) * 1024 for size in sizes), default=0)


def forget(path: Path) -> None:
    """Remove a file from the kernel's page cache."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
