"""Drives by name: the one place that opens them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvdrive import private
from kvdrive._native import Drive
from kvdrive.choices import TARGETS
from kvdrive.errors import InputError, TargetError
from kvdrive.kernels.rtl import prepare_drives
from kvdrive.private import cache_folder
from kvdrive.targets.addresses import FORMS, is_address, open_address
from kvdrive.targets.base import Target
from kvdrive.targets.cpu import PLAIN, CpuDrive
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.group import DriveGroup
from kvdrive.targets.options import DriveOptions
from kvdrive.targets.slowed import SlowedTarget
from kvdrive.targets.smartssd import CardDrive, is_smartssd, plan
from kvdrive.targets.temporary import temporary_folder
from kvdrive.targets.wrapped import LentTarget

Say = Callable[[str], None]
_LENT: dict[Path, Target] = {}  # drives in files that are open in this process, for others to use


@contextmanager
def open_drive(options: DriveOptions, say: Say | None = None) -> Iterator[Target]:
    """One drive with all of the capacity, closed at the end; see open_drives."""
    with open_drives(replace(options, drives=1), say) as group:
        yield group.drives[0]


@contextmanager
def open_drives(options: DriveOptions, say: Say | None = None) -> Iterator[DriveGroup]:
    """The drives of a folder, or those at an address as they are; closed at the end.

    `say` gets a sentence for each drive of the folder that holds sessions of earlier runs.
    Raises InputError if an existing drive does not fit `options`, TargetError.
    """
    if is_address(options.target):
        with open_address(options.target, options.identity) as group:
            yield group
        return
    if is_smartssd(options.target):
        with _open_cards(plan(options.target, options.image), options, say) as group:
            yield group
        return
    with drive_folder(options.folder) as folder, ExitStack() as opened:
        drives = []
        for number in range(options.drives):
            path = folder / (f"drive-{number}.kv" if number else "drive.kv")
            drives.append(opened.enter_context(_open(path, options)))
            if say is not None and (found := drives[-1].contents()):
                say(f"{path} holds {found}, which this run does not use")
        yield DriveGroup(drives)


@contextmanager
def open_existing(options: DriveOptions) -> Iterator[DriveGroup]:
    """`open_drives` for drives that are there already. Raises InputError, TargetError."""
    if not is_address(options.target) and not is_smartssd(options.target):
        if options.folder is None:
            raise InputError("weights are on drives that stay: name their `folder`, or them as `target`")
        if not (options.folder / "drive.kv").is_file():
            raise InputError(f"there is no drive in {options.folder}: `kvdrive convert --drive` puts weights there")
    with open_drives(options) as group:
        yield group


@contextmanager
def _open_cards(cards: list[CardDrive], options: DriveOptions, say: Say | None) -> Iterator[DriveGroup]:
    """A drive on each card's own SSD, in a temporary folder there unless `options` name one."""
    if options.folder is not None and len(cards) > 1:
        raise InputError("each card keeps its drive on its own SSD: leave `folder` out, or take one card")
    with ExitStack() as opened:
        drives = []
        for card in cards:
            folder = options.folder or opened.enter_context(temporary_folder(_made(card.folder)))
            part = replace(options, target="cpu", image=None, engine=card.engine, folder=folder, drives=1)
            part = replace(part, capacity_bytes=-(-options.capacity_bytes // len(cards)))
            drive = opened.enter_context(_open(folder / "drive.kv", part))
            drives.append(drive)
            if say is not None:
                for sentence in card.notes:
                    say(sentence)
        yield DriveGroup(drives)


def _made(folder: Path) -> Path:
    """Raises TargetError."""
    try:
        private.make_folder(folder)
    except OSError as error:
        raise TargetError(f"cannot make {folder} on the card's SSD: {error.strerror}") from error
    return folder


@contextmanager
def open_named(target: str | Path, options: DriveOptions) -> Iterator[DriveGroup]:
    """`target` as `attach` takes it. Raises InputError, TargetError."""
    options = replace(options, threads=options.threads or os.cpu_count() or 1)
    if isinstance(target, str) and (target in TARGETS or is_address(target) or is_smartssd(target)):
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
    """Mount the drive in a file, as its own kind, or create one as `options` say. Raises TargetError."""
    if lent := _lent(path, options):
        return lent
    there = _layout(path)
    disk = options.target == "cpu" if there is None else there["preset"] == PLAIN
    return _make(path, options, disk=disk)


def _open(path: Path, options: DriveOptions) -> Target:
    """Open the drive in a file, which must fit `options`, or a new one. Raises InputError, TargetError."""
    if lent := _lent(path, options):
        return lent
    disk = options.target == "cpu"
    there = None if options.format else _layout(path)
    if there is not None:
        wanted = PLAIN if disk else options.preset
        other = f"{path} holds a drive of preset {there['preset']}"
        if there["preset"] == PLAIN and not disk:
            raise InputError(f"{path} holds a drive of the cpu target: take `target=cpu`, another folder, or `format`")
        if wanted and there["preset"] != wanted:
            raise InputError(f"{other}, not {wanted}: take another folder, or `format` to forget what it holds")
        needed = options.needed_bytes // options.drives
        if there["capacity_bytes"] < needed:
            raise InputError(
                f"{path} was made for {_size(there['capacity_bytes'])} of K and V, this run takes up to "
                f"{_size(needed)}: take another folder, or `format` to forget what it holds"
            )
    return _make(path, options, disk=disk)


def _layout(path: Path) -> dict[str, Any] | None:
    """Preset and sizes of the drive in a file; None where there is no file. Never writes. Raises TargetError."""
    if not path.is_file():
        return None
    try:
        return Drive(path, "fast", read_only=True).layout()
    except (OSError, RuntimeError) as error:
        raise TargetError(str(error)) from error


@contextmanager
def drive_folder(chosen: Path | None) -> Iterator[Path]:
    """`chosen`, or a new folder that is removed at the end. Raises InputError for a folder that cannot be made."""
    try:
        folder = chosen or cache_folder()
        private.make_folder(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise InputError(f"cannot keep drives in {folder}: {error.strerror}; `folder` names another") from error
    if chosen is not None:
        yield chosen
        return
    with temporary_folder(folder) as temporary:
        yield temporary


def require_space(options: DriveOptions) -> None:
    """Raises InputError when the disk of new or existing drives has less than `needed_bytes` left."""
    if is_address(options.target) or is_smartssd(options.target):
        return
    place = options.folder or cache_folder()
    there = next(parent for parent in (place, *place.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if free < options.needed_bytes:
        raise InputError(
            f"K and V take up to {_size(options.needed_bytes)} and the disk of {place} has {_size(free)} left: free "
            "some space, name a `folder` on another disk, or take fewer tokens"
        )


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _share(options: DriveOptions) -> int:
    return -(-options.capacity_bytes // options.drives)


@contextmanager
def lend(drives: DriveGroup) -> Iterator[None]:
    """Meanwhile whoever opens the file of one of these drives uses that drive, and leaves it open."""
    own = [drive for drive in drives.drives if drive.exclusive and not isinstance(drive, LentTarget)]
    lent = {Path(drive.place).resolve(): drive for drive in own}
    _LENT.update(lent)
    try:
        yield
    finally:
        for path in lent:
            del _LENT[path]


def _lent(path: Path, options: DriveOptions) -> Target | None:
    """The drive in a file that is open already and lent. Raises InputError if its contents should be forgotten."""
    found = _LENT.get(path.resolve())
    if found is None:
        return None
    if options.format:
        raise InputError(f"{path} holds the weights of the model: leave `format` out")
    return LentTarget(found)


def _make(path: Path, options: DriveOptions, *, disk: bool) -> Target:
    drive = _drive(path, options, disk=disk)
    return drive if options.slowdown == 1 else SlowedTarget(drive, options.slowdown)


def _drive(path: Path, options: DriveOptions, *, disk: bool) -> Target:
    engine, threads, capacity, anew = options.engine, options.threads, _share(options), options.format
    if engine == "rtl":
        prepare_drives(options.group)
    kept = {"hot_bytes": options.hot_bytes // options.drives, "index_bytes": options.index_bytes}
    if disk:
        cache = options.cache_bytes // options.drives
        return CpuDrive(path, threads, capacity, engine=engine, format=anew, cache_bytes=cache, **kept)
    return Emulator(path, engine, threads, capacity, format=anew, preset=options.preset, **kept)
