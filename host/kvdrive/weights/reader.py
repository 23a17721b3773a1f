"""What a model needs of its weights on flash, wherever they are: bundles, read and checked, many at once.

`file.WeightsFile` reads a file with io_uring, `drive_reader.DriveWeights` the values of a drive.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from kvdrive.weights.bundles import I64, U8, Array
from kvdrive.weights.manifest import Manifest


class Reader(Protocol):
    """Complete weights of one model. `path`: their file, or the name of their drive in messages.

    A ticket is a read in flight; its memory must stay in place until `wait`. `waited_ns`: time in which `wait`, `read`
    and `read_rows` have waited. Every method raises TargetError once the reader is closed.
    """

    manifest: Manifest
    path: Path
    waited_ns: int

    def start(self, array: Array, index: int, to: U8, *, ahead: bool = False) -> int:
        """Start to read bundle `index` of `array` into page-aligned memory of `array.stride` bytes: a ticket.

        `ahead`: a prefetch, which is not awaited yet.
        """

    def hurry(self, ticket: int) -> None:
        """A prefetch is awaited now."""

    def cancel(self, ticket: int) -> bool:
        """Drop what has not begun of a read; False if all has. `wait` raises TargetError then."""

    def has_ended(self, ticket: int) -> bool:
        """True if `wait` would not wait."""

    def wait(self, ticket: int, array: Array, index: int) -> None:
        """Wait until the bundle is in memory and has been checked. Raises TargetError."""

    def read(self, array: Array, index: int, to: U8) -> None:
        """Read a bundle at once. Raises TargetError."""

    def read_rows(self, array: Array, indices: I64, to: U8, places: I64) -> None:
        """Read bundles into rows `places` of page-aligned memory [rows, array.stride]; all reads have ended then.

        Raises TargetError.
        """

    def counters(self) -> dict[str, int]:
        """Reads, bytes, the most reads in flight, time with reads in flight (ns), cancelled reads."""

    @property
    def ahead_in_flight_bytes(self) -> int:
        """The most bytes of prefetches in flight, which delay an awaited read."""

    @property
    def around_cache(self) -> bool:
        """True if every read is one of the flash, and none of a page cache."""

    def close(self) -> None:
        """End the reads. The counters stay."""
