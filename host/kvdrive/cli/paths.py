"""Checks of paths in options, made before the work starts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kvdrive.errors import InputError


def output_folder(value: Path | None) -> Path | None:
    """`value`, which is a folder or can become one. Raises InputError otherwise."""
    if value is None:
        return None
    there = next(place for place in (value.absolute(), *value.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise InputError(f"cannot write to {value}: {there} is no folder")
    _try_in(there, value)
    return value


def output_file(value: Path | None) -> Path | None:
    """`value`, a file that can be written: its folder is there. Raises InputError otherwise."""
    if value is None:
        return None
    folder = value.absolute().parent
    if value.is_dir():
        raise InputError(f"cannot write to {value}: it is a folder")
    if not folder.is_dir():
        raise InputError(f"cannot write to {value}: there is no folder {folder}")
    if not value.exists() or value.is_file():  # a file is written beside and takes its name
        _try_in(folder, value)
    elif not os.access(value, os.W_OK):  # a pipe or device
        raise InputError(f"cannot write to {value}: no permission")
    return value


def _try_in(folder: Path, wanted: Path) -> None:
    """Make a folder in `folder`, and remove it: rights alone do not tell (/proc, file systems that are read-only or
    full). Raises InputError.
    """
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".kvdrive-", dir=folder))
    except OSError as error:
        raise InputError(f"cannot write to {wanted}: {error.strerror} in {folder}") from error


def input_file(value: Path | None) -> Path | None:
    """`value`, a file that can be read. Raises InputError otherwise."""
    if value is None:
        return None
    try:
        value.open("rb").close()
    except OSError as error:
        raise InputError(f"cannot read {value}: {error.strerror}") from error
    return value


def input_files(values: list[Path] | None) -> list[Path] | None:
    """`values`, each of which can be read. Raises InputError otherwise."""
    for value in values or []:
        input_file(value)
    return values
