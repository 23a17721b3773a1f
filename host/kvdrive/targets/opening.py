"""Drives by name: the one place that opens them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kvdrive._native import Drive
from kvdrive.errors import InputError, TargetError
from kvdrive.targets.addresses import FORMS, is_address, open_address
from kvdrive.targets.base import Target
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.group import DriveGroup

TARGETS = ("emulator", "cpu")


@dataclass(frozen=True)
class DriveOptions:
    """`target`: "emulator" models flash in the drive's file, "cpu" takes the file's disk as it is; or where drives are
    that something else serves (`addresses.py`), which have an engine, flash and a capacity of their own. `identity`:
    this host's name and secrets, a file, for drives at tcp://.

    `engine` computes, with `threads`; `preset` names the flash that is modelled ("": the default one). Of the cpu
    target, K and V up to `cache_bytes` are read through the page cache, more around it.

    `capacity_bytes` of K and V, of all drives together. `folder` keeps the drives' files; None: a temporary folder in
    the user's cache. `drives`: how many share the KV heads of the batch.
    """

    engine: str = "fast"
    preset: str = ""
    threads: int = 1
    capacity_bytes: int = 1 << 30
    folder: Path | None = None
    drives: int = 1
    target: str = "emulator"
    cache_bytes: int = 0
    identity: Path | None = None

    def __post_init__(self) -> None:
        """Raises InputError for options that the target does not have."""
        if is_address(self.target):
            if self.preset or self.folder is not None or self.drives != 1:
                raise InputError(f"{self.target} has flash and files of its own: leave --preset, --drive, --drives out")
        elif self.target not in TARGETS:
            raise InputError(f"there is no target '{self.target}': choose {', '.join(TARGETS)}, {FORMS}")
        elif self.identity is not None:
            raise InputError("only drives at tcp:// ask who this host is: leave --identity out")
        if self.target == "cpu" and self.preset:
            raise InputError("the cpu target models no flash: leave --preset out")
        if self.target != "cpu" and self.cache_bytes:
            raise InputError("only the cpu target has a cache limit: leave --cache out, or take --target cpu")


@contextmanager
def open_drive(options: DriveOptions) -> Iterator[Target]:
    """One empty drive with all of the capacity, or the first at an address. Closed at the end. Raises TargetError."""
    if is_address(options.target):
        with open_address(options.target, options.identity) as drives:
            yield drives.drives[0]
        return
    with drive_folder(options.folder) as folder, _open(folder / "drive.kv", options) as drive:
        yield drive


@contextmanager
def open_drives(options: DriveOptions) -> Iterator[DriveGroup]:
    """Empty drives, or those at an address as they are; closed at the end. Raises TargetError."""
    if is_address(options.target):
        with open_address(options.target, options.identity) as drives:
            yield drives
        return
    with drive_folder(options.folder) as folder, ExitStack() as opened:
        paths = [folder / (f"drive-{number}.kv" if number else "drive.kv") for number in range(options.drives)]
        yield DriveGroup([opened.enter_context(_open(path, options)) for path in paths])


@contextmanager
def open_named(target: str | Path, options: DriveOptions) -> Iterator[DriveGroup]:
    """`target` as `attach` takes it. Raises InputError, TargetError."""
    options = replace(options, threads=options.threads or os.cpu_count() or 1)
    if isinstance(target, str) and (target in TARGETS or is_address(target)):
        with open_drives(replace(options, target=str(target))) as drives:
            yield drives
        return
    path = Path(target)
    if isinstance(target, str) and path.name == target and not path.suffix and not path.exists():
        raise InputError(f"there is no target '{target}': choose {', '.join(TARGETS)}, {FORMS} or a drive's file")
    if path.is_dir() or options.folder is not None or options.drives != 1:
        raise InputError(f"{path} must name one drive's file: give a folder or a number of drives as options instead")
    with DriveGroup([_mount(path, options)]) as drives:
        yield drives


def _mount(path: Path, options: DriveOptions) -> Target:
    """The drive in a file, of the kind that it was made as; a new one as `options` says. Raises TargetError."""
    disk = options.target == "cpu"
    if path.is_file() and path.stat().st_size:
        try:
            disk = Drive(path, "fast").layout()["preset"] == "plain"
        except (OSError, RuntimeError) as error:
            raise TargetError(str(error)) from error
    return _make(path, options, disk=disk, format=False)


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


def _open(path: Path, options: DriveOptions) -> Target:
    return _make(path, options, disk=options.target == "cpu", format=True)


def _make(path: Path, options: DriveOptions, *, disk: bool, format: bool) -> Target:
    capacity = -(-options.capacity_bytes // options.drives)
    if disk:
        cache = options.cache_bytes // options.drives
        return CpuDrive(path, options.threads, capacity, engine=options.engine, format=format, cache_bytes=cache)
    return Emulator(path, options.engine, options.threads, capacity, format=format, preset=options.preset)
