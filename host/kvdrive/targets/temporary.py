"""Temporary folders for drives. They are removed after their process ends, even if it was killed."""

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
    """A new folder in `parent`, removed at the end. First removes the folders of processes that were killed.

    A process holds a lock on its folder, which shows that it is alive. A new folder is created and locked under the
    lock of `parent`, so no other process sees it without its lock.
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
        with suppress(OSError), _locked(folder, wait=False):  # BlockingIOError: the folder's process is alive
            shutil.rmtree(folder)
            log.info("removed %s, the drives of a process that has ended", folder)


@contextmanager
def _locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock on `folder`. Raises OSError when another process holds it and `wait` is False."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)
