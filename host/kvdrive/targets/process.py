"""What belongs to one process: threads and drives that a forked child has no part in."""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakSet

from kvdrive.errors import UnsupportedError

_owned: WeakSet[Owned] = WeakSet()
_left_alone: list[Any] = []  # in a forked child: what is never closed there, because it is the parent's


class Owned:
    """Something that only the process may use that made it. A forked child is told so by `is_foreign`."""

    is_foreign = False

    def __init__(self) -> None:
        _owned.add(self)

    def require_own(self) -> None:
        """Raises UnsupportedError in a child that was forked from the process that made this."""
        if self.is_foreign:
            raise UnsupportedError(
                "this process was forked from the one that attached the model, whose threads and drives it does not "
                "have: detach the model here and attach it to another drive, or start processes with 'spawn'"
            )


def leave_alone(*parents: Any) -> None:
    """In a forked child: keep what is the parent's from being closed here."""
    _left_alone.extend(parents)


def _forked() -> None:
    for one in list(_owned):
        one.is_foreign = True


os.register_at_fork(after_in_child=_forked)
