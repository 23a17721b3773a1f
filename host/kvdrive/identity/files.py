"""The numbers of a checkpoint's files: a digest of all of their bytes, remembered as long as a file is the same.

A file counts as the same if its device, inode, size and its times of change are. Its times are trusted only where they
lay back for a while when the file was read: a file system counts time in ticks, and a later write in the same tick
would not show.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from kvdrive import private

_PIECE = 1 << 26  # bytes that a thread hashes at a time; change _KIND with it
_CHUNK = 1 << 22
_KIND = "sha256 of pieces of 64 MiB"
_MOST = 4096  # remembered files; the oldest ones leave
_TICK_NS = 2_000_000_000  # the longest of a file system
log = logging.getLogger(__name__)


def of_files(files: Sequence[Path], threads: int = 0, now_ns: Callable[[], int] = time.time_ns) -> str:
    """SHA-256 of the names and all bytes of some files, in hexadecimal. `threads` read and hash; 0: one a processor.

    Files that were read once, and have not changed since, are not read again. Raises OSError.
    """
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        remembered = _Remembered(private.cache_folder() / "digests.json")
        found = [[path.name, _of_file(path, pool, remembered, now_ns)] for path in files]
        remembered.save()
    return hashlib.sha256(json.dumps([_KIND, found]).encode()).hexdigest()


def _of_file(path: Path, pool: ThreadPoolExecutor, remembered: _Remembered, now_ns: Callable[[], int]) -> str:
    before = path.stat()
    if (known := remembered.get(path, before)) is not None:
        return known
    starts = range(0, before.st_size, _PIECE)
    digest = hashlib.sha256(before.st_size.to_bytes(8, "little"))
    for piece in pool.map(partial(_of_piece, path), starts):
        digest.update(piece)
    found, after = digest.hexdigest(), path.stat()
    changed = max(after.st_mtime_ns, after.st_ctime_ns)
    if marks(before) == marks(after) and now_ns() - changed > _TICK_NS:
        remembered.put(path, after, found)
    return found


def _of_piece(path: Path, start: int) -> bytes:
    digest, left = hashlib.sha256(), _PIECE
    with path.open("rb") as file:
        file.seek(start)
        while left and (chunk := file.read(min(left, _CHUNK))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.digest()


def marks(status: os.stat_result) -> list[int]:
    """What differs after any write to a file, and between files."""
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


class _Remembered:
    """Digests in a file of the user's cache, which may be missing or damaged, by name and `_marks` of what was read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new: dict[str, str] = {}
        self._known = self._read()

    def get(self, path: Path, status: os.stat_result) -> str | None:
        """The digest of a file that is still the same."""
        return self._known.get(self._key(path, status))

    def put(self, path: Path, status: os.stat_result, digest: str) -> None:
        """Remember a digest."""
        self._new[self._key(path, status)] = digest

    def save(self) -> None:
        """Write what is new. A file that cannot be written is logged."""
        if not self._new:
            return
        every = self._read() | self._new
        try:
            private.make_folder(self._path.parent)
            private.write_text(self._path, json.dumps(dict(list(every.items())[-_MOST:]), indent=1))
        except OSError as error:
            log.warning("digests of weights are not remembered, and are computed again the next time: %s", error)

    def _key(self, path: Path, status: os.stat_result) -> str:
        """Names are those of this machine: others may share the user's folder."""
        return json.dumps([_KIND, os.uname().nodename, str(path.resolve()), *marks(status)])

    def _read(self) -> dict[str, str]:
        with suppress(OSError, ValueError):
            found = json.loads(self._path.read_text())
            if isinstance(found, dict) and all(isinstance(one, str) for one in found.values()):
                return found
        return {}
