"""Drives as a command line names them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvdrive.targets.base import Target
from kvdrive.targets.emulator import Emulator


@dataclass(frozen=True)
class DriveOptions:
    """`engine` computes, with `threads`; `preset` names the flash that is modelled ("": the default one).

    `capacity_bytes` of K and V. `folder` keeps the drives' files; None: a temporary folder in the user's cache.
    """

    engine: str = "fast"
    preset: str = ""
    threads: int = 1
    capacity_bytes: int = 1 << 30
    folder: Path | None = None


@contextmanager
def open_drives(options: DriveOptions) -> Iterator[Target]:
    """Empty drives, closed at the end. Raises TargetError."""
    with drive_folder(options.folder) as folder:
        drive = Emulator(
            folder / "drive.kv",
            options.engine,
            options.threads,
            options.capacity_bytes,
            format=True,
            preset=options.preset,
        )
        with drive as target:
            yield target


@contextmanager
def drive_folder(chosen: Path | None) -> Iterator[Path]:
    """`chosen`, or a new folder that goes with its contents."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
        return
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="drive-", dir=cache) as folder:
        yield Path(folder)


def cache_folder() -> Path:
    """Where drives without a folder of their own live: not in /tmp, which is often memory and no disk."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvdrive"
