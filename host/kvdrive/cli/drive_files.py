"""Helpers that the commands of `kvdrive drive` share: open a drive's file, print results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kvdrive._native import Drive
from kvdrive.errors import InputError, TargetError
from kvdrive.kernels.rtl import prepare_drives

DriveFile = Annotated[Path, typer.Argument(help="the drive's backing file")]


def open_drive(path: Path, engine: str = "fast", threads: int = 1, **options: Any) -> Drive:
    """Mount the drive in a file, or create it. Raises TargetError."""
    if engine == "rtl":
        prepare_drives(0)
    try:
        return Drive(path, engine, threads, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise TargetError(str(error)) from error


def open_existing(path: Path, engine: str = "fast", threads: int = 1, **options: Any) -> Drive:
    """Mount a drive, with options that change nothing there. Raises InputError where there is none, TargetError."""
    if not path.is_file():
        raise InputError(f"there is no drive at {path}: `kvdrive drive create` makes one")
    return open_drive(path, engine, threads, **options)


def show(title: str, values: dict[str, Any], as_json: bool) -> None:
    """Print a table, or one line of JSON."""
    if as_json:
        typer.echo(json.dumps(values))
        return
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in values.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)


def serial_of(path: Path) -> str:
    """A serial number from the file's device and inode, so that it does not depend on the path that names the file."""
    status = path.stat()
    return f"KV{status.st_dev:x}{status.st_ino:x}".upper()[:20]
