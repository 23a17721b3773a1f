"""Temporary folders for drives, which go with their process, however it ends."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

_PREFIX = "temporary-"


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, removed at the end; folders of processes that were killed are removed before.

    A process holds a lock on its folder, so that the others know it is alive. Nobody looks between the making of a
    folder and its lock: that happens under the lock of `parent`.
    """
    with _locked(parent):
        _remove_abandoned(parent)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _remove_abandoned(parent: Path) -> None:
    for folder in sorted(parent.glob(f"{_PREFIX}*")):
        with suppress(OSError), _locked(folder, wait=False):  # BlockingIOError: its process lives
            shutil.rmtree(folder)
            log.info("removed %s, the drives of a process that has ended", folder)


@contextmanager
def _locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Raises OSError when another process holds the lock and `wait` is False."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)
