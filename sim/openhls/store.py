# SPDX-License-Identifier: Apache-2.0
"""What is built once: folders under a hash of everything that they depend on, shared by all processes and runs.

They lie in the user's cache folder, or in OPENHLS_CACHE; where that cannot be written, in the folder of temporary
files. Those that were used least recently are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT_BYTES = 3 << 30
IN_USE_S = 3600.0  # a folder that was used within this time is never removed
CLEANED_S = 300.0  # between two looks at the size of everything: each takes a while


def root() -> Path:
    """The folder of all that is kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvdrive/openhls"
    place = Path(os.environ.get("OPENHLS_CACHE") or cache)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        place = Path(tempfile.gettempdir()) / f"openhls-{os.getuid()}"
        place.mkdir(mode=0o700, exist_ok=True)
    return place


def digest(parts: Iterable[str | bytes]) -> str:
    """One hash over texts in their order."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()


def texts(paths: Iterable[Path]) -> list[bytes]:
    """Names and contents of files, for `digest`. Their folders do not count."""
    return [part for path in paths for part in (path.name.encode(), path.read_bytes())]


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold a lock, so that only one process builds at a time."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def kept(kind: str, parts: Iterable[str | bytes], make: Callable[[Path], None]) -> Path:
    """The folder that `make` has filled for these parts; made now if nobody has. What `make` raises is not kept.

    `parts` are everything that the result depends on. A `make` may ask for other kinds, not for its own.
    """
    key = digest(parts)
    place = root() / f"{kind}-{key}"
    if not place.exists():
        with alone(root() / f"{kind}-{key[:2]}.lock"):
            if not place.exists():
                _make(place, make)
        _remove_old()
    with contextlib.suppress(OSError):  # of another user, perhaps
        os.utime(place)
    return place


def _make(place: Path, make: Callable[[Path], None]) -> None:
    part = Path(tempfile.mkdtemp(prefix="part-", dir=place.parent))
    try:
        make(part)
        part.rename(place)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _remove_old() -> None:
    """Remove what was used least recently, down to LIMIT_BYTES, but nothing that may be in use."""
    stamp = root() / "cleaned"
    if stamp.exists() and time.time() - stamp.stat().st_mtime < CLEANED_S:
        return
    stamp.touch()
    found = []
    for place in root().iterdir():
        with contextlib.suppress(OSError):  # another process may have removed it
            if place.is_dir():
                size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
                found.append((place.stat().st_mtime, size, place))
    total = sum(size for _, size, _ in found)
    for used, size, place in sorted(found):
        if total <= LIMIT_BYTES or time.time() - used < IN_USE_S:
            break
        shutil.rmtree(place, ignore_errors=True)
        total -= size
