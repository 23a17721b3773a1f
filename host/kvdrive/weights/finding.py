"""Where the weights of a checkpoint are: a file in the cache or of a given name, or a drive."""

from __future__ import annotations

import glob
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from kvdrive.errors import InputError
from kvdrive.generation import checkpoints
from kvdrive.private import cache_folder
from kvdrive.targets.opening import lend, open_existing
from kvdrive.weights import fingerprint
from kvdrive.weights.drive_reader import DriveWeights
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.manifest import Manifest
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.origin import check_origin
from kvdrive.weights.reader import Reader

SUFFIX = ".kvw"
_DIGITS = 12  # of the fingerprint, in the name of a file


def manifest_of(checkpoint: Path, options: FlashOptions) -> tuple[Path, Manifest]:
    """The file of weights of a checkpoint, and its manifest. Raises InputError."""
    weights = open_reader(checkpoint, options)
    weights.close()
    check_origin(weights, checkpoints.read_config(checkpoint), checkpoint)
    return weights.path, weights.manifest


def open_reader(checkpoint: Path, options: FlashOptions) -> Reader:
    """The weights of a checkpoint, in a file or on a drive. Raises InputError, TargetError."""
    if options.on_drive is None:
        return WeightsFile(_existing(checkpoint, options), copy=options.weights_copy)
    where = replace(options.on_drive, threads=options.on_drive.threads or os.cpu_count() or 1)  # K and V use it, too
    opened = ExitStack()
    try:
        drives = opened.enter_context(open_existing(where))
        opened.enter_context(lend(drives))
        config = fingerprint.of_config(checkpoints.read_config(checkpoint))
        return DriveWeights(drives.drives[0], config, opened.close)
    except BaseException:
        opened.close()
        raise


def default_path(checkpoint: Path) -> Path:
    """The default place of a checkpoint's weights."""
    return _folder() / f"{_stem(checkpoint)}-{fingerprint.of_source(checkpoint)[:_DIGITS]}{SUFFIX}"


def _existing(checkpoint: Path, options: FlashOptions) -> Path:
    """The file of weights of a checkpoint. Raises InputError if there is none."""
    file = file_of(checkpoint, options)
    if not file.exists():
        raise InputError(f"there are no weights in {file}: `kvdrive convert --model {checkpoint}` writes them")
    return file


def file_of(checkpoint: Path, options: FlashOptions) -> Path:
    """The file of weights of a checkpoint. Raises InputError if the checkpoint's own are deleted and several fit."""
    if options.weights_file is not None:
        return options.weights_file
    if fingerprint.weight_files(checkpoint):
        return default_path(checkpoint)
    found = sorted(_folder().glob(f"{glob.escape(_stem(checkpoint))}-{'[0-9a-f]' * _DIGITS}{SUFFIX}"))
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise InputError(f"{checkpoint} has no weights, and {_folder()} has {names}: name one with `weights_file`")
    return found[0] if found else default_path(checkpoint)


def _folder() -> Path:
    return cache_folder() / "weights"


def _stem(checkpoint: Path) -> str:
    return checkpoint.stem if checkpoint.is_file() else checkpoint.absolute().name
