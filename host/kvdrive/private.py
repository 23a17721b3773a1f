"""Files and folders that hold K, V, tokens, prompts, weights or keys.

They are made here, and nowhere else in this package (`tests/host/test_private.py`): for their owner alone, whatever the
umask, and under their name only when they are whole. A file is written beside its name, flushed and renamed. What a
killed process left beside it was never finished; whoever makes the file next takes its place. Files that exist keep
their rights, and `too_open` names those that others can read. Drives do the same (`sim/drive/storage/whole_file.hpp`).
"""

from __future__ import annotations

import fcntl
import glob
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

UNFINISHED = ".unfinished"
log = logging.getLogger(__name__)
_FILE, _FOLDER = 0o600, 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def cache_folder() -> Path:
    """What can be made again, and drives without a place. Not in /tmp, which is often in memory and not on a disk."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvdrive"


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing. Raises OSError."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(_FOLDER, exist_ok=True)


def make_file(path: Path) -> bool:
    """Make an empty file where there is none, for a library that opens it by name. True if it was. Raises OSError."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE))
    except FileExistsError:
        return False
    return True


def open_file(path: Path, mode: str, **options: Any) -> IO[Any]:
    """Open a file that grows or is overwritten in place, like `open`. Raises OSError."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, _FILE), **options)


def open_descriptor(path: Path, flags: int) -> int:
    """Open a file like os.open, with O_CREAT. Raises OSError."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, _FILE)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write. At the end it is made durable and becomes `path`; after an error nothing of it is left.

    Processes that write the same file wait for each other. A pipe or device is written to as it is. Raises OSError.
    """
    if path.exists() and not path.is_file():
        with open(path, "wb") as device:
            yield device
        return
    path = Path(os.path.realpath(path))  # a link stays, and the file that it names is replaced
    beside = unfinished(path)
    with open(_alone(beside), "w+b") as file:
        try:
            file.truncate(0)
            yield file
            file.flush()
            os.fsync(file.fileno())
            publish(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def unfinished(path: Path) -> Path:
    """The name under which a file is written."""
    return path.with_name(path.name + UNFINISHED)


def publish(path: Path) -> None:
    """Give a file that was written as `unfinished(path)`, durably, its name. Raises OSError."""
    os.replace(unfinished(path), path)
    flush_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a file, or replace it. Raises OSError."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, or replace it. Raises OSError."""
    with whole_file(path) as file:
        file.write(content)


def close_to_others(folder: Path) -> None:
    """Take the rights of others from a folder and all that is in it, which a library has written. Raises OSError."""
    folder.chmod(_FOLDER)
    for one in folder.rglob("*"):
        one.chmod(_FOLDER if one.is_dir() else _FILE)


def remove_unfinished(path: Path) -> None:
    """Remove what a killed process left beside `path`, unless another one is writing it now."""
    beside = unfinished(path)
    with suppress(OSError):
        held = os.open(beside, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(held), beside.stat()):
                beside.unlink()
        finally:
            os.close(held)


def flush_tree(folder: Path) -> None:
    """Make a folder and all that is in it durable. Raises OSError."""
    for one in [*folder.rglob("*"), folder]:
        if one.is_dir():
            flush_folder(one)
        else:
            with one.open("rb") as file:
                os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def too_open(path: Path) -> str:
    """The rights of a file, folder or socket that others than its owner have, such as "rw-r--r--"; "" if none have."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    return stat.filemode(mode)[1:] if mode & _OTHERS else ""


def open_to_others(paths: list[Path]) -> list[str]:
    """A sentence for each of these that others than its owner can use."""
    return [
        f"{path} can be used by others than its owner ({rights}): chmod go= {path}"
        for path in paths
        if (rights := too_open(path))
    ]


def below(folder: Path) -> list[Path]:
    """What is in a folder, at any depth, but for what other processes remove meanwhile."""
    return sorted(Path(at) / name for at, folders, files in os.walk(folder) for name in (*folders, *files))


def with_derived(path: Path) -> list[Path]:
    """A file and those beside it that are derived from it: their names begin with its name."""
    return [path, *sorted(path.parent.glob(f"{glob.escape(path.name)}[.-]*"))]


def warn_of_others(path: Path) -> None:
    """Log a sentence for a file, and for each that is derived from it, that others than its owner can use."""
    for sentence in open_to_others(with_derived(path)):
        log.warning("%s", sentence)


def _alone(beside: Path) -> int:
    """A descriptor of the file, which is locked as long as it is open. Raises OSError."""
    while True:
        held = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(held), beside.stat()):  # else it got its name meanwhile
                os.fchmod(held, _FILE)
                return held
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(held)
            raise
        os.close(held)
