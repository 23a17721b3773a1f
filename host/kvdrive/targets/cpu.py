"""An ordinary disk as the drive: K and V in a file, attention on the cores of this machine, times are real."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from kvdrive._native import DiskQueue
from kvdrive.targets.base import TargetStats
from kvdrive.targets.software import DEFAULT_CAPACITY, SoftwareDrive

INDEX_BYTES = 1 << 30  # memory for the index of policy groups, enough for 12 GiB of K and V
PLAIN = "plain"  # preset of a drive without a flash model
_RUN_GROUPS = 16  # groups of a head that are written together: 64 KiB, the smallest size that disks read fast
_STAGED_BYTES = 1 << 30  # the most staged rows, in bytes, of all sequences together


@dataclass(frozen=True)
class ReadStats:
    """Reads of the file since it was opened; `sizes`: number of reads by their bytes.

    `around_cache`: the file system reads around the page cache (O_DIRECT). `asynchronous`: several at once (io_uring).
    `early`: pieces of up to 1 MiB that were read for an expected query before it came; `unused`: those that none used.
    """

    reads: int
    bytes: int
    sizes: dict[int, int]
    around_cache: bool
    asynchronous: bool
    early: int
    unused: int


class CpuDrive(SoftwareDrive):
    """The file `path` on any disk: mounted with the sessions it holds, or made where there is none.

    `threads` compute; 0 takes one per core. Up to `cache_bytes` of K and V are read through the page cache, which
    keeps them. More are read around it, through buffers of 24 MiB for any context. `format` removes everything
    from the file. Policy groups: `hot_bytes` of the K and V that were read last, and `index_bytes` of its index, stay
    in memory. `capacity_bytes` of K and V applies to a new or formatted file, which is sparse until written.
    Raises TargetError when the file is something else or in use.
    """

    def __init__(
        self,
        path: Path,
        threads: int = 0,
        capacity_bytes: int = DEFAULT_CAPACITY,
        *,
        engine: str = "fast",
        format: bool = False,
        cache_bytes: int = 0,
        hot_bytes: int = 0,
        index_bytes: int = INDEX_BYTES,
    ) -> None:
        super().__init__(
            path,
            engine,
            threads or os.cpu_count() or 1,
            capacity_bytes,
            format=format,
            preset=PLAIN,
            run_groups=_RUN_GROUPS,
            staged_bytes=_STAGED_BYTES,
            cache_bytes=cache_bytes,
            hot_bytes=hot_bytes,
            index_bytes=index_bytes,
        )
        self.cache_bytes = cache_bytes
        self._disk = DiskQueue(path)
        device = path.stat().st_dev
        self._disk_name = f"{os.major(device)}:{os.minor(device)}"

    def stats(self) -> TargetStats:
        reads = self.read_stats()
        return replace(super().stats(), file_reads=reads.reads, file_bytes_read=reads.bytes)

    def read_stats(self) -> ReadStats:
        """Reads of the file. Raises TargetError when the drive is closed."""
        return ReadStats(**self._open_drive().read_stats())

    def transfers(self) -> dict[str, dict[str, dict[str, int]]]:
        """See Target: those of all drives and files of weights on the disk."""
        return {self._disk_name: self._disk.counters()}

    def keep_trace(self, events: int) -> bool:
        """See Target: the timeline is the disk's."""
        self._disk.keep_trace(events)
        return True

    def trace(self) -> str:
        return self._disk.trace()
