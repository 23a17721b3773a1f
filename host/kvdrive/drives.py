"""Drives and attention as a command line names them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from transformers import PreTrainedModel

from kvdrive.errors import InputError
from kvdrive.plugins.transformers import DEFAULT_SPILL, Attachment, OnFailure, attach
from kvdrive.policies import make_policy
from kvdrive.policies.h2o import H2O
from kvdrive.policies.host import HostAttachment, attach_host
from kvdrive.targets.base import Target
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.group import DriveGroup

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
def attached(
    model: PreTrainedModel, drives: DriveGroup, options: AttentionOptions
) -> Iterator[Attachment | HostAttachment]:
    """The model on the drives, or in memory under a policy that no drive runs. Raises UnsupportedError, InputError."""
    policy = make_policy(options.attention, options.ratio or Fraction(1))
    if isinstance(policy, H2O):
        with attach_host(model, policy) as on_host:
            yield on_host
        return
    with attach(model, drives, policy, spill=options.spill, on_failure=options.on_failure) as on_drives:
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
    capacity = -(-options.capacity_bytes // options.drives)
    if options.target == "cpu":
        cache = options.cache_bytes // options.drives
        return CpuDrive(path, options.threads, capacity, engine=options.engine, format=True, cache_bytes=cache)
    return Emulator(path, options.engine, options.threads, capacity, format=True, preset=options.preset)
