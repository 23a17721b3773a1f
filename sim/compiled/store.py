# SPDX-License-Identifier: Apache-2.0
"""Files that a command makes from others, made once and shared by all processes.

An entry is a file `<name>-<key><suffix>` and its checksum. The key stands for everything that the file is made of, so
that a file is never out of date. Both appear under their names when they are whole. A file whose checksum differs is
made again. Processes that need the same file at the same time wait for the first one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compiled.recipe import ROOT


def default_folder() -> Path:
    """The tree's build folder, or the user's cache where the tree cannot be written."""
    tree = ROOT / "build"
    if (ROOT / "pyproject.toml").exists() and os.access(tree if tree.exists() else ROOT, os.W_OK):
        return tree / "kernels"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvdrive/kernels"


class Store:
    """Entries in `folder`, which only this user can read."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()

    def path(self, name: str, key: str, suffix: str) -> Path:
        return self.folder / f"{name}-{key}{suffix}"

    def find(self, name: str, key: str, suffix: str) -> Path | None:
        """The entry, if it is there and whole."""
        path = self.path(name, key, suffix)
        return path if _is_whole(path) else None

    def get(self, name: str, key: str, suffix: str, make: Callable[[Path], None]) -> Path:
        """The entry. Where it is missing or damaged, `make` writes it to the path that it gets."""
        path = self.path(name, key, suffix)
        if _is_whole(path):
            return path
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._alone(path.name):
            if not _is_whole(path):
                self._make(path, make)
        return path

    def _make(self, path: Path, make: Callable[[Path], None]) -> None:
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            make(part)
            part.chmod(part.stat().st_mode & 0o700)
            _sum_of(path).unlink(missing_ok=True)
            part.rename(path)
            part.write_text(_digest(path))
            part.chmod(0o600)
            part.rename(_sum_of(path))
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        with (self.folder / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def key_of(texts: list[str], files: list[Path]) -> str:
    """16 hexadecimal digits for the texts, and for the names and contents of the files."""
    total = hashlib.sha256("\0".join(texts).encode())
    for file in files:
        total.update(f"\0{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


def _sum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_whole(path: Path) -> bool:
    try:
        return _sum_of(path).read_text() == _digest(path)
    except FileNotFoundError:
        return False
