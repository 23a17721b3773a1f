"""What a drive session carries beside K and V, so that it explains itself: the token of each row, and a record.

Both are rows like those of a layer, in layers that no model has. Forking and trimming the session, and the drive's
journal and checksums, apply to them without further work. A row of CHAIN_LAYER is a token number in digits of 11 bits,
which binary16 holds exactly; a row of a record layer is up to 256 bytes, one in each value.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence as Several
from dataclasses import replace
from functools import partial

import numpy as np

from kvdrive import abi
from kvdrive.errors import KvdriveError
from kvdrive.kvcache.session import OWN_LAYERS, Session
from kvdrive.kvcache.slices import Slice, gather
from kvdrive.nvme.errors import CommandError
from kvdrive.prefix.record import CHAIN_VALUES, Record
from kvdrive.targets.base import Target

CHAIN_LAYER = 0xFFFE
_FIRST_RECORD = 0xFFFD  # the layer of the first record; each later record takes the layer below
_RECORDS = 16_000  # of a session; the last one can only say that the session is not usable
assert _FIRST_RECORD - _RECORDS >= OWN_LAYERS
_DIGIT_BITS = 11
_ROW_BYTES, _ROWS = 256, 255


class RecordsFullError(KvdriveError):
    """A session has as many records as it may have, or needs a larger one than there may be."""


class Metadata:
    """Record and tokens that the drive sessions of one running sequence have. They are written where they changed."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """The sequence has new sessions, which carry nothing."""
        self._named: list[int] = []  # tokens that each part names
        self._record: str | None = None  # what all parts have

    def forked(self, parts: int, tokens: int, record: str | None) -> None:
        """The sequence is a fork: each of its parts names `tokens` tokens and has `record`; None: not the whole."""
        self._named, self._record = [tokens] * parts, record

    def truncate(self, tokens: int) -> None:
        """The drives are about to remove all but the first `tokens` tokens."""
        self._named = [min(named, tokens) for named in self._named]

    def write(self, parts: Several[Slice], record: Record, ids: list[int]) -> None:
        """Give the parts of a sequence their record and its tokens. Raises CommandError, RecordsFullError."""
        self._named = self._named or [0] * len(parts)
        text = record.text()
        fresh = self._record != text

        def work(part: int, one: Slice, target: Target) -> None:
            if fresh:
                put_record(one.session, replace(record, part=part, first=one.first, last=one.last))
            if self._named[part] < len(ids):
                put_tokens(one.session, self._named[part], ids[self._named[part] :])
                self._named[part] = len(ids)

        gather([one.queue.start(partial(work, part, one)) for part, one in enumerate(parts)])
        self._record = text

    def mark_unusable(self, parts: Several[Slice], record: Record) -> None:
        """Say on the drives that K and V do not fit the tokens until the next `write`.

        Raises CommandError, TargetError.
        """
        if self._record is None:
            return
        unusable = replace(record, usable=False)

        def mark(part: int, one: Slice, target: Target) -> None:
            put_record(one.session, replace(unusable, part=part, first=one.first, last=one.last))

        self._record = None
        gather([one.queue.start(partial(mark, part, one)) for part, one in enumerate(parts)])


def put_tokens(session: Session, first: int, ids: list[int]) -> None:
    """Append the token numbers from token `first` on. Raises CommandError."""
    numbers = np.asarray(ids, np.uint32)
    rows = np.zeros((1, len(ids), CHAIN_VALUES), np.float16)
    for digit in range(3):
        rows[0, :, digit] = numbers >> (digit * _DIGIT_BITS) & ((1 << _DIGIT_BITS) - 1)
    session.append(CHAIN_LAYER, abi.KvKind.KEYS, first, rows)


def read_tokens(session: Session, count: int) -> list[int]:
    """The first `count` token numbers. Raises CommandError."""
    if not count:
        return []
    digits = session.read(CHAIN_LAYER, abi.KvKind.KEYS, 0, (1, count, CHAIN_VALUES))[0, :, :3].astype(np.int64)
    found: list[int] = (digits @ (1 << _DIGIT_BITS * np.arange(3))).tolist()
    return found


def put_record(session: Session, record: Record) -> None:
    """Add a record; the last one counts. Raises CommandError, RecordsFullError."""
    number = _records(session)
    if number >= _RECORDS - record.usable:
        raise RecordsFullError(f"a session was changed {number} times, no more changes can be noted: begin a new one")
    body = zlib.compress(record.text().encode())
    content = len(body).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little") + body
    rows = -(-len(content) // _ROW_BYTES)
    if rows > _ROWS:
        raise RecordsFullError(
            f"what must be noted of a session takes {len(body):,} bytes, more than {_ROWS * _ROW_BYTES - 8:,}: save it "
            "without X-cache"
        )
    values = np.frombuffer(content.ljust(rows * _ROW_BYTES, b"\0"), np.uint8).astype(np.float16)
    session.append(_FIRST_RECORD - number, abi.KvKind.KEYS, 0, values.reshape(rows, 1, _ROW_BYTES))


def read_record(session: Session) -> Record | None:
    """The last record; None if there is none that can be read. Raises CommandError when the drive lost its contents."""
    number = _records(session)
    if number == 0:
        return None
    layer = _FIRST_RECORD - number + 1
    head = _bytes(session, layer, 1)
    size = int.from_bytes(head[:4], "little")
    rows = -(-(size + 8) // _ROW_BYTES)
    if rows > _ROWS:
        return None
    body = _bytes(session, layer, rows)[8 : 8 + size]
    if zlib.crc32(body) != int.from_bytes(head[4:8], "little"):
        return None
    try:
        return Record.of(zlib.decompress(body).decode())
    except (ValueError, TypeError, zlib.error):
        return None


def stored_tokens(session: Session, layer: int, kind: abi.KvKind, head_dim: int) -> int:
    """Tokens of the first head of a layer, found by reading single rows. Raises CommandError for lost contents."""
    low, high = 0, abi.MAX_TOKENS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(session, layer, kind, middle - 1, head_dim) else (low, middle - 1)
    return low


def chain_tokens(session: Session) -> int:
    """Tokens that the session's chain names. Raises CommandError for lost contents."""
    return stored_tokens(session, CHAIN_LAYER, abi.KvKind.KEYS, CHAIN_VALUES)


def _records(session: Session) -> int:
    """How many records a session has; few reads find the last one."""

    def has(count: int) -> bool:
        return holds(session, _FIRST_RECORD - count + 1, abi.KvKind.KEYS, 0, _ROW_BYTES)

    high = 1
    while high <= _RECORDS and has(high):
        high *= 2
    low, high = high // 2, min(high, _RECORDS + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if has(middle) else (low, middle)
    return low


def _bytes(session: Session, layer: int, rows: int) -> bytes:
    values = session.read(layer, abi.KvKind.KEYS, 0, (rows, 1, _ROW_BYTES))
    return values.astype(np.uint8).tobytes()


def holds(session: Session, layer: int, kind: abi.KvKind, token: int, head_dim: int) -> bool:
    """True if the first head of a layer has this token. Raises CommandError for lost contents."""
    try:
        session.read(layer, kind, token, (1, 1, head_dim))
    except CommandError as error:
        if error.status == abi.NvmeStatus.TOKENS_MISSING:
            return False
        raise
    return True
