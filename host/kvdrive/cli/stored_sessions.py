"""The index and the sessions of drives that a command names by their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kvdrive.errors import InputError, TargetError
from kvdrive.targets.addresses import is_address

if TYPE_CHECKING:
    from kvdrive.prefix.index import Index
    from kvdrive.prefix.stored import StoredSessions


def index_file(place: str) -> Path:
    """The file of the index of the drives at `place`, where there is one. Raises InputError for no drive."""
    from kvdrive.prefix.opening import index_path

    return index_path(place if is_address(place) else str(_files(place)[0]))


@contextmanager
def open_index(place: str) -> Iterator[Index]:
    """The index of the drives at `place`; they may be in use. Raises InputError where there is none."""
    from kvdrive.prefix.index import Index

    path = index_file(place)
    if not path.exists():
        raise InputError(f"there is no index at {path}: no sessions were saved there, or `gc` makes it again")
    index = Index(path)
    try:
        if index.made:
            raise InputError(f"{path} was damaged or is not filled yet: `kvdrive sessions gc {place}` fills it")
        yield index
    finally:
        index.close()


@contextmanager
def open_stored(place: str) -> Iterator[StoredSessions]:
    """The sessions on the drives at `place`. An index that is not there is made again. Raises InputError,
    TargetError.
    """
    from kvdrive.kvcache.backing import Backing
    from kvdrive.prefix.index import Index
    from kvdrive.prefix.opening import index_path
    from kvdrive.prefix.rebuild import rebuild
    from kvdrive.prefix.stored import StoredSessions
    from kvdrive.targets.opening import open_named
    from kvdrive.targets.options import DriveOptions

    places: list[str | Path] = [place] if is_address(place) else list(_files(place))
    with ExitStack() as opened, _naming_the_holder(places):
        drives = [drive for one in places for drive in opened.enter_context(open_named(one, DriveOptions())).drives]
        backing = Backing(drives, 1, b"")
        opened.callback(backing.close)
        index = Index(index_path(drives[0].place))
        opened.callback(index.close)
        if index.made:
            rebuild(index, backing)
        yield StoredSessions(index, backing)


@contextmanager
def _naming_the_holder(places: list[str | Path]) -> Iterator[None]:
    """Add to the error of a drive's file that another process has open which process that is."""
    try:
        yield
    except TargetError as error:
        holders = [text for place in places if isinstance(place, Path) and (text := _holder(place))]
        if not holders:
            raise
        raise TargetError(
            f"{error}; process {', '.join(holders)} has it: end that process, or let it do this "
            "(a server removes a session by DELETE /v1/sessions/NAME)"
        ) from error


def _holder(path: Path) -> str:
    """Number and command of the process that holds the lock on a file; "" if this machine does not tell."""
    try:
        inode = str(path.stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                command = Path(f"/proc/{fields[4]}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                return f"{fields[4]} ({command.strip()[:80]})"
    except OSError:
        pass
    return ""


def _files(place: str) -> list[Path]:
    """The files of the drives in a folder, or one drive's file. Raises InputError."""
    path = Path(place)
    if path.is_dir():
        first = path / "drive.kv"
        others = sorted(path.glob("drive-*.kv"), key=lambda file: (len(file.name), file.name))
        if first.exists():
            return [first, *others]
    if not path.is_file():
        raise InputError(f"there is no drive at {place}")
    return [path]
