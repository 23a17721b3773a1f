"""What the prefix store needs to keep sessions that a drive always continues where they are."""

from __future__ import annotations

from contextlib import ExitStack
from typing import NoReturn

from kvdrive.kvcache.backing import Backing
from kvdrive.prefix.context import Context
from kvdrive.prefix.evictor import Evictor
from kvdrive.prefix.opening import open_index
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.resume import Costs
from kvdrive.prefix.stored import StoredSessions
from kvdrive.prefix.wear import Governor


def open_store(backing: Backing, options: SessionOptions, opened: ExitStack) -> Context:
    """The store of the drives of `backing`, closed with `opened`. Raises InputError, TargetError."""
    index = open_index(backing, options)
    opened.callback(index.close)
    with index.transaction():
        index.close_dead()
        index.forget_future()
    stored = StoredSessions(index, backing)
    context = Context(
        stored,
        Evictor(stored, options),
        Governor(index.accounts, options.daily_bytes, lambda: index.now),
        Costs(None, "", _no_rates),
        every=1,
        check_model=lambda: None,
    )
    opened.callback(context.saver.shutdown)
    return context


def _no_rates() -> NoReturn:
    raise AssertionError("a sequence on the drive is continued there, whatever it costs elsewhere")
