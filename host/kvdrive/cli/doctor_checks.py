"""The checks of `kvdrive doctor`, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvdrive.doctor.finding import Finding


def checks(drive: str = "") -> Iterator[Finding]:
    """All findings, in the order in which they are shown. `drive`: whose measured rates are shown; "": of all known."""
    from kvdrive.doctor import cards, machine, resume, storage, tools
    from kvdrive.private import cache_folder

    yield from machine.machine()
    yield from machine.packages()
    yield from machine.engines()
    yield from machine.models()
    yield from storage.storage(cache_folder())
    yield from storage.rights([cache_folder(), *_place_of(drive)])
    yield from resume.resume(_costs_files(drive))
    yield from tools.tools()
    yield from cards.cards()
    yield from tools.accelerator()


def _place_of(drive: str) -> list[Path]:
    """The file or folder of a drive; nothing for one that is elsewhere."""
    path = Path(drive)
    return [path] if drive and path.exists() else []


def _costs_files(place: str) -> list[Path]:
    """The files of measured rates beside the drive at `place`, or those in the user's cache. Raises InputError."""
    from kvdrive.cli.stored_sessions import index_file
    from kvdrive.prefix.rates import costs_file
    from kvdrive.private import below, cache_folder

    if not place:
        return [path for path in below(cache_folder()) if path.suffix == ".costs"]
    found = costs_file(index_file(place))
    return [found] if found else []
