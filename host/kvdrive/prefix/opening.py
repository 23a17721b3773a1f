"""Opens the store of a model that is attached to drives."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import threading
from pathlib import Path
from types import FrameType

from kvdrive.kvcache.backing import Backing
from kvdrive.prefix.index import Index
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.placement import Placements
from kvdrive.prefix.rebuild import collect, rebuild
from kvdrive.prefix.store import PrefixStore

log = logging.getLogger(__name__)
SUFFIX = ".sessions"


def open_store(
    backing: Backing, shape: tuple[int, int], placements: Placements, options: SessionOptions
) -> PrefixStore:
    """The store on these drives, for a model with `shape` (KV heads, head dimension).

    Raises InputError, TargetError.
    """
    index = open_index(backing, options)
    try:
        store = PrefixStore(backing, index, shape, placements, options)
    except BaseException:
        index.close()
        raise
    end_on_sigterm()
    return store


def open_index(backing: Backing, options: SessionOptions) -> Index:
    """The index of these drives. One that is not there is made from what they hold; what a killed process has left is
    removed. Raises InputError, TargetError.
    """
    targets = [queue.target for queue in backing.queues]
    index = Index(options.index or index_path(targets[0].place))
    try:
        if index.made:
            if count := rebuild(index, backing):
                log.warning("the index of sessions was made again: %d sessions", count)
        elif options.index is None and all(target.exclusive for target in targets):
            collect(index, backing)
        _report_others(index, backing)
    except BaseException:
        index.close()
        raise
    return index


def _report_others(index: Index, backing: Backing) -> None:
    """Say which sessions on the drives do not belong to the store."""
    named = index.places()
    for number, queue in enumerate(backing.queues):
        others = sum((number, session) not in named for session in queue.target.sessions())
        if others and queue.target.exclusive:
            log.warning("%s holds %d sessions which this run does not use", queue.target.place, others)


def index_path(place: str) -> Path:
    """The index's file: beside the drive's file or socket, or in the user's cache for a drive on another machine."""
    path = Path(place)
    if path.exists():
        return path.with_name(path.name + SUFFIX)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvdrive" / "sessions"
    return cache / hashlib.sha256(place.encode()).hexdigest()[:32]


def end_on_sigterm() -> None:
    """Make SIGTERM end this process by SystemExit, so that sessions are saved; unless the program handles it itself."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
