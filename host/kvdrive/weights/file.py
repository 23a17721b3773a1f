"""An open file of weights: reads of bundles around the page cache, checked, many at once."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import numpy as np

from kvdrive import private
from kvdrive._native import PieceReader
from kvdrive.errors import InputError, TargetError
from kvdrive.weights.bundles import I64, U8, Array, Table
from kvdrive.weights.copies import Copies
from kvdrive.weights.manifest import Manifest, read_front

DEPTH = 64  # reads in flight; fast disks want at least 32


class WeightsFile:
    """A complete file of weights, open for reading. Raises InputError with a sentence for any other file.

    `copy`: an equal file on another drive, which serves a part of the reads.
    """

    def __init__(self, path: Path, depth: int = DEPTH, copy: Path | None = None) -> None:
        self.manifest, self._table = _front(path)
        if copy is not None:
            manifest, table = _front(copy)
            if manifest != self.manifest or not np.array_equal(table, self._table):
                raise InputError(f"{copy} is no copy of {path}: copy the file again")
        self.path, self._depth = path, depth
        try:
            readers = [PieceReader(one, self.manifest.piece_bytes, depth) for one in (path, copy) if one is not None]
            self._open: Copies | None = Copies(readers)
        except RuntimeError as error:
            raise TargetError(str(error)) from error
        for one in (path, copy):
            if one is not None:
                private.warn_of_others(one)
        self._around_cache = self._reader.around_cache
        self._counters: dict[str, int] = {}
        self.waited_ns = 0

    @property
    def _reader(self) -> Copies:
        if self._open is None:
            raise TargetError(f"{self.path} is closed")
        return self._open

    def start(self, array: Array, index: int, to: U8, *, ahead: bool = False) -> int:
        """Start to read bundle `index` of `array` into page-aligned memory of `array.stride` bytes: a ticket.

        The memory must stay in place until `wait`. `ahead`: a prefetch, which is not awaited yet.
        """
        pieces = array.pieces_of_bundle(self.manifest.piece_bytes)
        first = array.first_piece + index * pieces
        return self._reader.start(array.bundle(index), to, self._table[first : first + pieces], ahead)

    def hurry(self, ticket: int) -> None:
        """A prefetch is awaited now."""
        self._reader.hurry(ticket)

    def cancel(self, ticket: int) -> bool:
        """Drop what has not begun of a read; False if all has. `wait` raises TargetError then."""
        return self._reader.cancel(ticket)

    def has_ended(self, ticket: int) -> bool:
        """True if `wait` would not wait."""
        return self._reader.has_ended(ticket)

    def wait(self, ticket: int, array: Array, index: int) -> None:
        """Wait until the bundle is in memory and has been checked. Raises TargetError."""
        began = time.perf_counter_ns()
        outcome = self._reader.wait(ticket)
        self.waited_ns += time.perf_counter_ns() - began
        self._require(*outcome, array, index)

    def read_rows(self, array: Array, indices: I64, to: U8, places: I64) -> None:
        """Read bundles into rows `places` of page-aligned memory [rows, array.stride]; all reads have ended then.

        Raises TargetError.
        """
        pieces = array.pieces_of_bundle(self.manifest.piece_bytes)
        sums = self._table[array.first_piece : array.first_piece + array.count * pieces].reshape(array.count, pieces)
        began = time.perf_counter_ns()
        failed, error, bad = self._reader.read_rows(array.offset + indices * array.stride, to, places, sums[indices])
        self.waited_ns += time.perf_counter_ns() - began
        if failed >= 0:
            self._require(error, bad, array, int(indices[failed]))

    def _require(self, error: int, bad: int, array: Array, index: int) -> None:
        """Raises TargetError unless a read has ended well."""
        what = f"bundle {index} of {array.name} in {self.path}"
        if error:
            raise TargetError(
                f"cannot read {what}: {os.strerror(error)}; check the disk, or convert the checkpoint again"
            )
        if bad >= 0:
            raise TargetError(f"{what} is damaged (piece {bad}): convert the checkpoint again")

    def read(self, array: Array, index: int, to: U8) -> None:
        """Read a bundle at once. Raises TargetError."""
        self.wait(self.start(array, index, to), array, index)

    def counters(self) -> dict[str, int]:
        """Reads, bytes, the most reads in flight, time with reads in flight (ns), cancelled reads."""
        return self._counters if self._open is None else self._open.counters()

    @property
    def bytes_by_copy(self) -> list[int]:
        """What the file and its copy have read; nothing after `close`."""
        return [] if self._open is None else self._open.bytes_by_copy

    def close(self) -> None:
        """End the threads that read. The counters stay."""
        self._counters = self.counters()
        self._open = None

    @property
    def ahead_in_flight_bytes(self) -> int:
        """The most bytes of prefetches in flight, which delay an awaited read."""
        return max(1, self._depth // 8) * self.manifest.piece_bytes

    @property
    def around_cache(self) -> bool:
        """True if reads bypass the page cache, so that every one of them is a read of the disk."""
        return self._around_cache


def _front(path: Path) -> tuple[Manifest, Table]:
    """Manifest and checksums of a complete file. Raises InputError."""
    try:
        with path.open("rb") as file:
            header, manifest, table = read_front(file, path)
    except OSError as error:
        raise InputError(f"cannot read the weights {path}: {error.strerror}") from error
    if header.ready < len(manifest.arrays):
        raise InputError(
            f"the conversion to {path} has not ended: {header.ready} of {len(manifest.arrays)} parts are "
            "there; run `kvdrive convert` again, and it goes on"
        )
    if path.stat().st_size < manifest.file_bytes:
        raise InputError(f"{path} is truncated: convert the checkpoint again")
    return manifest, table


def aligned(count: int) -> U8:
    """Memory of `count` bytes at the beginning of a page, allocated by the kernel when it is written.

    It is private to the process, so that limits of a process's memory count it, and not passed to children: reads
    around the page cache must not meet memory that is copied when it is written (open(2)).
    """
    memory = mmap.mmap(-1, max(count, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_DONTFORK)
    return np.frombuffer(memory, np.uint8)
