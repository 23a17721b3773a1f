"""Where K and V of a stored sequence are read: on a drive, or in a copy in memory that has the same bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Several
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from kvdrive import abi
from kvdrive.kvcache.slices import Slice, gather
from kvdrive.nvme.commands import Halves, kv_read, stored_bytes
from kvdrive.nvme.rows import Bytes, bytes_of_row, decoded, tokens_per_group
from kvdrive.nvme.wire import RowFormat
from kvdrive.targets.base import Target
from kvdrive.targets.queue import WorkQueue

_COMMAND_BYTES = 1 << 20  # of one KV_READ, at most
_IN_FLIGHT = 4  # KV_READs of one drive
_AT_ONCE = 1024  # tokens that are copied at once
List = tuple[int, abi.KvKind]  # K or V of a layer


@dataclass(frozen=True)
class Piece:
    """`tokens` tokens of K or V, from token `first` on."""

    kind: abi.KvKind
    first: int
    tokens: int


class Source(Protocol):
    """KV heads `first` to `last` - 1 of one sequence. Its methods are called in the thread of `queue`, with its
    `target`.
    """

    @property
    def queue(self) -> WorkQueue[Any]:
        """What reads."""

    @property
    def first(self) -> int:
        """The first KV head."""

    @property
    def last(self) -> int:
        """Behind the last KV head."""

    def parts(self, target: Any, layer: int, head_dim: int, tokens: range) -> list[Piece]:
        """K and V of `tokens` of a layer, in pieces."""

    def rows(self, target: Any, layer: int, head_dim: int, parts: Several[Piece]) -> Iterable[Halves]:
        """The rows [heads, tokens, d] of a few of these pieces. Raises CommandError, TargetError."""


class FromDrive:
    """See Source: `one` on its drive, with several KV_READs in flight."""

    def __init__(self, one: Slice) -> None:
        self._one = one
        self.queue, self.first, self.last = one.queue, one.first, one.last

    def parts(self, target: Target, layer: int, head_dim: int, tokens: range) -> list[Piece]:
        stored_as = self._one.session.stored_as(layer)
        per_token = (self.last - self.first) * bytes_of_row(stored_as, head_dim)
        group = tokens_per_group(stored_as, head_dim)
        fit = max(1, min(_COMMAND_BYTES, target.max_transfer_bytes) // per_token)
        return _pieces(tokens, fit // group * group or fit)

    def rows(self, target: Target, layer: int, head_dim: int, parts: Several[Piece]) -> Iterator[Halves]:
        stored_as = self._one.session.stored_as(layer)
        for found in self.stored(target, layer, head_dim, parts):
            yield decoded(found, stored_as, head_dim)

    def stored(self, target: Target, layer: int, head_dim: int, parts: Several[Piece]) -> Iterator[Bytes]:
        """The rows as they are stored: [heads, tokens, bytes of a row]."""
        session, heads = self._one.session, self.last - self.first
        commands = [
            kv_read(
                session.number, layer, 0, one.kind, one.first, (heads, one.tokens, head_dim), session.stored_as(layer)
            )
            for one in parts
        ]
        for one, done in zip(parts, target.submit_many(commands), strict=True):
            yield stored_bytes(done.check(abi.Opcode.KV_READ), (heads, one.tokens))


class HeldRows:
    """See Source: all KV heads of the first `tokens` tokens, in memory, with the bytes that the drives have.

    `rows`: K and V of each layer, uint8 [heads, tokens, bytes of a row]. `queue`: the thread that copies from here.
    Reads that have not ended yet are waited for, by layer.
    """

    def __init__(self, rows: dict[List, Bytes], stored_as: RowFormat, queue: WorkQueue[Any]) -> None:
        self.queue = queue
        self.first = 0
        self.last, self.tokens, _ = next(iter(rows.values())).shape
        self._rows = rows
        self._stored_as = stored_as
        self._arriving: dict[int, list[Future[None]]] = {}
        self._lock = threading.Lock()
        self._users = 0

    @classmethod
    def of_drives(
        cls,
        slices: Several[Slice],
        lists: Iterable[tuple[int, abi.KvKind, int, int]],
        tokens: int,
        stored_as: RowFormat,
        queue: WorkQueue[Any],
    ) -> HeldRows:
        """Begins to read `tokens` tokens from the drives, layer by layer. `lists`: see Record.lists."""
        shapes = {(layer, kind): (heads, head_dim) for layer, kind, heads, head_dim in lists}
        held = cls(
            {
                one: np.empty((heads, tokens, bytes_of_row(stored_as, d)), np.uint8)
                for one, (heads, d) in shapes.items()
            },
            stored_as,
            queue,
        )
        for layer, head_dim in {layer: head_dim for (layer, _), (_, head_dim) in shapes.items()}.items():
            held._arriving[layer] = [
                one.queue.start(partial(held._fill, FromDrive(one), layer, head_dim)) for one in slices
            ]
        return held

    @property
    def bytes(self) -> int:
        """Of all rows."""
        return sum(rows.nbytes for rows in self._rows.values())

    @property
    def is_whole(self) -> bool:
        """True if all reads have ended well."""
        return all(one.done() and one.exception() is None for one in self._reads)

    @property
    def is_used(self) -> bool:
        """True while a load reads from here, or a drive has not ended its reads."""
        return self._users > 0 or not all(one.done() for one in self._reads)

    @property
    def failed(self) -> BaseException | None:
        """The error of a read that has ended."""
        return next((one.exception() for one in self._reads if one.done() and one.exception()), None)

    def wait(self) -> None:
        """Return when the drives have ended their reads. Raises CommandError, TargetError."""
        gather(self._reads)

    def take(self) -> None:
        """A load begins."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """A load has ended. Any thread may call it."""
        with self._lock:
            self._users -= 1

    def stored(self, layer: int, kind: abi.KvKind) -> Bytes:
        """K or V of a layer as they are stored."""
        return self._rows[layer, kind]

    def parts(self, target: Any, layer: int, head_dim: int, tokens: range) -> list[Piece]:
        return _pieces(tokens, _AT_ONCE)

    def rows(self, target: Any, layer: int, head_dim: int, parts: Several[Piece]) -> Iterator[Halves]:
        gather(self._arriving.get(layer, []))
        for one in parts:
            found = self._rows[layer, one.kind][:, one.first : one.first + one.tokens]
            yield decoded(np.ascontiguousarray(found), self._stored_as, head_dim)

    @property
    def _reads(self) -> list[Future[None]]:
        return [one for reads in self._arriving.values() for one in reads]

    def _fill(self, one: FromDrive, layer: int, head_dim: int, target: Target) -> None:
        """In a drive's thread: K and V of its heads of a layer."""
        parts = one.parts(target, layer, head_dim, range(self.tokens))
        for start in range(0, len(parts), _IN_FLIGHT):
            some = parts[start : start + _IN_FLIGHT]
            for part, found in zip(some, one.stored(target, layer, head_dim, some), strict=True):
                place = self._rows[layer, part.kind][one.first : one.last]
                place[:, part.first : part.first + part.tokens] = found


def _pieces(tokens: range, at_once: int) -> list[Piece]:
    return [
        Piece(kind, first, min(at_once, tokens.stop - first))
        for first in range(tokens.start, tokens.stop, at_once)
        for kind in abi.KvKind
    ]
