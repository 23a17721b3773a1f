"""Checks of paths in options, made before the work starts."""

from __future__ import annotations

import os
from pathlib import Path

from kvdrive.errors import InputError


def output_folder(value: Path | None) -> Path | None:
    """`value`, which is a folder or can become one. Raises InputError otherwise."""
    if value is None:
        return None
    there = next(place for place in (value.absolute(), *value.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise InputError(f"cannot write to {value}: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to {value}: no permission in {there}")
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
    there = value.exists() and not value.is_file()  # a pipe or device; a file is written beside and takes its name
    if not os.access(value if there else folder, os.W_OK):
        raise InputError(f"cannot write to {value}: no permission")
    return value


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
