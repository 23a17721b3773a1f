"""Several drives that share one KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import TracebackType

from kvdrive.errors import InputError
from kvdrive.targets.base import Target, TargetStats


class DriveGroup:
    """Drives of any kinds, used side by side; closing the group closes them. Raises InputError without a drive."""

    def __init__(self, drives: Sequence[Target]) -> None:
        if not drives:
            raise InputError("a group needs at least one drive")
        self.drives = tuple(drives)

    def stats(self) -> TargetStats:
        """The sum over the drives. Raises TargetError."""
        parts = [drive.stats() for drive in self.drives]
        return TargetStats(*(sum(getattr(part, field.name) for part in parts) for field in fields(TargetStats)))

    def device_ns(self) -> int | None:
        """Modelled ns since opening. Drives work in parallel, so this is the largest of theirs. Raises TargetError."""
        times = [time for drive in self.drives if (time := drive.device_ns()) is not None]
        return max(times, default=None)

    def close(self) -> None:
        """Release every drive."""
        for drive in self.drives:
            drive.close()

    def __enter__(self) -> DriveGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


Drives = Target | DriveGroup | Sequence[Target]


def drives_of(target: Drives) -> tuple[Target, ...]:
    """The single drives. Raises InputError when there are none."""
    if isinstance(target, Target):
        return (target,)
    return (target if isinstance(target, DriveGroup) else DriveGroup(target)).drives


@dataclass(frozen=True)
class Part:
    """KV heads `first` to `last` - 1 of one sequence lie on drive number `drive`."""

    drive: int
    first: int
    last: int


def split(rows: int, heads: int, drives: int) -> list[list[Part]]:
    """Split rows x heads into `drives` contiguous shares, as equal as possible. Returns the parts of each row.

    A drive without a share appears in no row.
    """
    bounds = [rows * heads * drive // drives for drive in range(drives + 1)]
    parts = []
    for row in range(rows):
        shares = [
            Part(drive, max(bounds[drive] - row * heads, 0), min(bounds[drive + 1] - row * heads, heads))
            for drive in range(drives)
        ]
        parts.append([part for part in shares if part.first < part.last])
    return parts
