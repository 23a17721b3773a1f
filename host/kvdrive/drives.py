"""Drives and attention by name: the one place that opens drives for a model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from transformers import PreTrainedModel

from kvdrive._native import Drive
from kvdrive.errors import InputError, TargetError
from kvdrive.plugins import transformers
from kvdrive.plugins.transformers import DEFAULT_SPILL, Attachment, OnFailure
from kvdrive.policies import Policy, make_policy
from kvdrive.policies.h2o import H2O
from kvdrive.policies.host import HostAttachment, attach_host
from kvdrive.targets.base import Target
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.group import DriveGroup, Drives

TARGETS = ("emulator", "cpu")


@dataclass(frozen=True)
class DriveOptions:
    """`target`: "emulator" models flash in the drive's file, "cpu" takes the file's disk as it is.

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

    def __post_init__(self) -> None:
        """Raises InputError for options that the target does not have."""
        if self.target not in TARGETS:
            raise InputError(f"there is no target '{self.target}': choose {' or '.join(TARGETS)}")
        if self.target == "cpu" and self.preset:
            raise InputError("the cpu target models no flash: leave --preset out")
        if self.target != "cpu" and self.cache_bytes:
            raise InputError("only the cpu target has a cache limit: leave --cache out, or take --target cpu")


@dataclass(frozen=True)
class AttentionOptions:
    """What a drive computes and how new tokens get there; `kvdrive.attach` explains the fields."""

    attention: str = "exact"
    ratio: Fraction | None = None
    spill: int = DEFAULT_SPILL
    on_failure: OnFailure = "raise"


def attach(
    model: PreTrainedModel,
    target: Drives | str | Path = "emulator",
    attention: str | Policy = "exact",
    ratio: Fraction | None = None,
    *,
    spill: int = DEFAULT_SPILL,
    on_failure: OnFailure = "raise",
    options: DriveOptions | None = None,
) -> Attachment:
    """Send the decode attention of `model` to drives; as a context manager it restores the model.

    `target`: drives that are open, and stay so; or "emulator" or "cpu", empty drives as `options` describes them; or
    the path of a drive's file, which is mounted with what it holds, or made where there is none (an emulator, unless
    `options.target` is "cpu"). What is opened here is closed when the model is detached.

    `attention`: a policy or its name, at compression `ratio`. `spill`: new tokens of a layer wait on the host until so
    many can be written at once; 1 writes each at once. `on_failure`: what happens when a drive is lost or loses data:
    "recompute" makes the same K and V again on what is left, and the text goes on as it would have.
    Raises UnsupportedError for models that a drive cannot serve exactly, InputError, TargetError.
    """
    if options is not None and not isinstance(target, str | Path):
        raise InputError("options are for drives that are opened here: leave them out for drives that are open")
    with ExitStack() as opened:
        drives: Drives
        if isinstance(target, str | Path):
            drives = opened.enter_context(_open_named(target, options or DriveOptions()))
        else:
            drives = target
        attachment = transformers.attach(model, drives, attention, ratio, spill=spill, on_failure=on_failure)
        attachment.close_with(opened.pop_all())
    return attachment


@contextmanager
def open_drive(options: DriveOptions) -> Iterator[Target]:
    """One empty drive with all of the capacity, closed at the end. Raises TargetError."""
    with drive_folder(options.folder) as folder, _open(folder / "drive.kv", options) as drive:
        yield drive


@contextmanager
def open_drives(options: DriveOptions) -> Iterator[DriveGroup]:
    """Empty drives, closed at the end. Raises TargetError."""
    with drive_folder(options.folder) as folder, ExitStack() as opened:
        paths = [folder / (f"drive-{number}.kv" if number else "drive.kv") for number in range(options.drives)]
        yield DriveGroup([opened.enter_context(_open(path, options)) for path in paths])


@contextmanager
def _open_named(target: str | Path, options: DriveOptions) -> Iterator[DriveGroup]:
    """`target` as `attach` takes it. Raises InputError, TargetError."""
    options = replace(options, threads=options.threads or os.cpu_count() or 1)
    if target in TARGETS:
        with open_drives(replace(options, target=str(target))) as drives:
            yield drives
        return
    path = Path(target)
    if isinstance(target, str) and path.name == target and not path.suffix and not path.exists():
        raise InputError(f"there is no target '{target}': choose {' or '.join(TARGETS)}, or the path of a drive's file")
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
def attached(
    model: PreTrainedModel, drives: DriveGroup, options: AttentionOptions
) -> Iterator[Attachment | HostAttachment]:
    """The model on the drives, or in memory under a policy that no drive runs. Raises UnsupportedError, InputError."""
    policy = make_policy(options.attention, options.ratio or Fraction(1))
    if isinstance(policy, H2O):
        with attach_host(model, policy) as on_host:
            yield on_host
        return
    with transformers.attach(model, drives, policy, spill=options.spill, on_failure=options.on_failure) as on_drives:
        yield on_drives


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
