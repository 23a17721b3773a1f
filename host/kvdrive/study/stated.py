"""Numbers that the papers state as results, and that something here takes as an input; and who reads them.

`value` reads a number. `watched` collects the claims whose numbers are read meanwhile, so that a prediction that is
told its own answer is noticed, however far away it reads it. Two rules keep that complete, and tests hold them: no
number is read while a module is imported, and results are kept for later by `remembered`, not by `functools.cache`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_watches: ContextVar[tuple[set[str], ...]] = ContextVar("watches", default=())
_kept: list[dict[Any, Any]] = []


@dataclass(frozen=True)
class Stated:
    """`printed`: the number in `unit`, for pictures; models read `value`. `claim`: that it belongs to, itself or
    beside it in the text."""

    claim: str
    printed: float
    unit: str
    says: str

    @property
    def value(self) -> float:
        """The number. Reading it is noticed."""
        read(self.claim)
        return self.printed


def read(*claims: str) -> None:
    """Notice that numbers of these claims go into what is computed now: read, fitted to, or in a recorded result."""
    for watch in _watches.get():
        watch.update(claims)


@contextmanager
def watched() -> Iterator[set[str]]:
    """The claims whose numbers are read inside."""
    claims: set[str] = set()
    token = _watches.set((*_watches.get(), claims))
    try:
        yield claims
    finally:
        _watches.reset(token)


def remembered(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compute once for the same arguments, like `functools.cache`. A result from before has read the same numbers."""
    known: dict[Any, tuple[Result, Iterable[str]]] = {}
    _kept.append(known)

    @wraps(function)
    def result(*positional: Arguments.args, **named: Arguments.kwargs) -> Result:
        key = (positional, tuple(sorted(named.items())))
        if key not in known:
            with watched() as claims:
                known[key] = function(*positional, **named), claims
            return known[key][0]
        read(*known[key][1])
        return known[key][0]

    return result


def forget() -> None:
    """Drop everything that `remembered` keeps."""
    for known in _kept:
        known.clear()
