"""The files of a checkpoint, read around the page cache, many pieces at once, and checked.

A *.safetensors has no checksums. Every read is followed by a look at the file: its size and times must be those it had
before its digest was taken (`identity.files`). The CRC-32C of each piece of a unit is noted when it is read for the
first time; later reads must have the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvdrive._native import PieceReader, crc32c
from kvdrive.errors import TargetError
from kvdrive.identity.files import marks
from kvdrive.weights.bundles import PAGE, PIECE_BYTES, U8, Table
from kvdrive.weights.file import DEPTH
from kvdrive.weights.stream.units import Extent


@dataclass(frozen=True)
class Read:
    """A read in flight into `to`, the memory of `extent`; `ticket` 0 where the file's last bytes are all of it."""

    extent: Extent
    to: U8
    ticket: int


class CheckpointFiles:
    """Open files. Not safe to call concurrently. `bytes`: what the reads have asked for; `waited_ns`: time in `wait`.

    Raises TargetError for files that cannot be opened.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._sums: dict[tuple[int, int], Table] = {}
        self._counters: dict[str, int] = {}
        self.bytes = self.waited_ns = 0
        self._open: list[PieceReader] = []
        self._descriptors: list[int] = []
        try:
            self._descriptors = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]
            self._open = [PieceReader(path, PIECE_BYTES, DEPTH) for path in paths]
            self._marks = [marks(os.fstat(one)) for one in self._descriptors]
            # The end of a file is a part of a page, which reads around the page cache cannot have.
            self._ends = [found[2] // PAGE * PAGE for found in self._marks]
            self._tails = [os.pread(one, PAGE, end) for one, end in zip(self._descriptors, self._ends, strict=True)]
        except (OSError, RuntimeError) as error:
            self.close()
            raise TargetError(f"cannot open the checkpoint: {error}") from error

    def start(self, extent: Extent, to: U8) -> Read:
        """Start to read an extent into page-aligned memory of its size, which stays in place until `wait`.

        Raises TargetError for files that are closed.
        """
        if not self._open:
            raise TargetError(f"{self._paths[0].parent} is closed")
        size = min(extent.start + extent.bytes, self._ends[extent.file]) - extent.start
        if size <= 0:
            return Read(extent, to, 0)
        sums = self._sums.get((extent.file, extent.start))
        if sums is None or len(sums) != -(-size // PIECE_BYTES):
            sums = np.zeros(-(-size // PIECE_BYTES), np.uint32)
        self.bytes += size
        return Read(extent, to, self._open[extent.file].start(extent.start, to[:size], sums))

    def wait(self, reads: Sequence[Read], *, noted: bool) -> None:
        """Wait until these reads are in memory and check them. `noted`: note and compare checksums.

        Raises TargetError for an error of the disk and for files that are not as they were; all reads have ended then.
        """
        began = time.perf_counter_ns()
        outcomes = [self._open[one.extent.file].wait(one.ticket) if one.ticket else (0, -1) for one in reads]
        self.waited_ns += time.perf_counter_ns() - began
        for read, (error, bad) in zip(reads, outcomes, strict=True):
            path = self._paths[read.extent.file]
            if error:
                raise TargetError(f"cannot read {path}: {os.strerror(error)}; check the disk")
            self._require_same(read.extent.file)
            if noted and read.ticket:
                self._compare(read, bad)
            self._add_tail(read)

    def counters(self) -> dict[str, int]:
        """Reads, bytes, the most reads in flight, time with reads in flight (ns), cancelled reads."""
        if self._open:
            several = [one.counters() for one in self._open]
            self._counters = {name: sum(one[name] for one in several) for name in several[0]}
            for name in ("busy_ns", "most_in_flight"):
                self._counters[name] = max(one[name] for one in several)
        return self._counters | {"bytes": self.bytes}

    @property
    def around_cache(self) -> bool:
        """True if every read is one of the flash, and none of a page cache."""
        return all(one.around_cache for one in self._open)

    def close(self) -> None:
        """End the reads and close the files. The counters stay."""
        self.counters()
        self._open = []
        for one in self._descriptors:
            os.close(one)
        self._descriptors = []

    def require_same(self) -> None:
        """Raises TargetError if a file is not as it was when it was opened."""
        for file in range(len(self._paths)):
            self._require_same(file)

    def _require_same(self, file: int) -> None:
        if marks(os.fstat(self._descriptors[file])) != self._marks[file]:
            raise TargetError(
                f"{self._paths[file]} has changed while the model was reading it: start again, with a checkpoint that "
                "nobody writes"
            )

    def _compare(self, read: Read, bad: int) -> None:
        """Note the checksums of an extent that is read for the first time. Raises TargetError for others than those."""
        place = read.extent.file, read.extent.start
        size = min(read.extent.start + read.extent.bytes, self._ends[read.extent.file]) - read.extent.start
        if place not in self._sums:
            pieces = range(0, size, PIECE_BYTES)
            self._sums[place] = np.array(
                [crc32c(read.to[at : min(at + PIECE_BYTES, size)]) for at in pieces], np.uint32
            )
        elif bad >= 0:
            raise TargetError(
                f"{self._paths[read.extent.file]} has other bytes behind byte {read.extent.start + bad * PIECE_BYTES} "
                "than when they were read before: check the disk, and download the checkpoint again"
            )

    def _add_tail(self, read: Read) -> None:
        """Fill in the end of the file, if it is in the extent."""
        extent, end = read.extent, self._ends[read.extent.file]
        if extent.start + extent.bytes > end:
            tail = np.frombuffer(self._tails[extent.file], np.uint8)
            read.to[end - extent.start : end - extent.start + len(tail)] = tail
