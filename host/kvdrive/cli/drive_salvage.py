"""`kvdrive drive fsck|recover`: check a drive's file, and rescue sessions from a damaged one."""

from __future__ import annotations

import json
import os
from fcntl import LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.console import Console

from kvdrive import private
from kvdrive._native import Drive
from kvdrive.cli.command import JsonFlag
from kvdrive.cli.drive_files import DriveFile, open_drive, open_existing
from kvdrive.errors import InputError, TargetError

_COPY_BYTES = 1 << 24


def fsck(
    path: DriveFile,
    repair: Annotated[
        bool, typer.Option("--repair", help="keep what verifies, forget the rest, and say what that is")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare a drive's maps, spares and contents; exit code 1 if they disagree. Writes only with --repair."""
    with Console(stderr=True).status(f"reading {path}"):
        drive = open_existing(path, salvage=True) if repair else open_existing(path, read_only=True)
        _report(path, drive, as_json)


def recover(
    old: Annotated[Path, typer.Argument(help="the damaged drive's file; it is only read")],
    new: Annotated[Path, typer.Argument(help="a file that does not exist yet")],
    as_json: JsonFlag = False,
) -> None:
    """Make a new drive of what a damaged one still holds: every session whose pages and spares verify.

    Prints what does not come back and why. A session that was removed shortly before (not erased) may come back too.
    """
    if not old.is_file():
        raise InputError(f"there is no file {old}")
    if new.exists():
        raise InputError(f"{new} exists: choose another path")
    beside = private.unfinished(new)  # it gets its name when everything that verifies is in it
    try:
        with old.open("rb") as source, private.open_file(beside, "wb") as target:
            flock(source, LOCK_SH | LOCK_NB)
            _copy(source, target)
        with Console(stderr=True).status(f"reading {new}"):
            drive = open_drive(beside, salvage=True)
            private.publish(new)
            _report(new, drive, as_json, written_as=beside)
    except BlockingIOError as error:
        raise TargetError(f"a drive has {old} open: close it first") from error
    except OSError as error:
        raise TargetError(f"cannot copy {old} to {new}: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)


def _report(path: Path, drive: Drive, as_json: bool, written_as: Path | None = None) -> None:
    """Print what was found. Raises Exit when maps, spares and contents disagree."""
    notices, disagreements = drive.notices(), drive.check()
    if written_as is not None:
        notices = [sentence.replace(str(written_as), str(path)) for sentence in notices]
    sessions = drive.sessions()
    if as_json:
        found = {"path": str(path), "notices": notices, "disagreements": disagreements, "sessions": sessions}
        typer.echo(json.dumps(found))
    else:
        for sentence in notices + disagreements:
            typer.echo(sentence)
        groups = drive.flash_stats()["groups_live"]
        typer.echo(f"{path}: {len(disagreements)} disagreements, {groups:,} groups, {len(sessions)} sessions")
    if disagreements:
        raise typer.Exit(1)


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    """Copy a file; holes stay holes. Raises OSError."""
    end = os.fstat(source.fileno()).st_size
    target.truncate(end)
    at = 0
    while at < end:
        try:
            at = os.lseek(source.fileno(), at, os.SEEK_DATA)
        except OSError:  # no data after this offset: the rest of the file is a hole
            return
        stop = os.lseek(source.fileno(), at, os.SEEK_HOLE)
        source.seek(at)
        target.seek(at)
        while at < stop:
            piece = source.read(min(_COPY_BYTES, stop - at))
            if not piece:
                return
            target.write(piece)
            at += len(piece)
