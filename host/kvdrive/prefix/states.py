"""States of a model's layers in memory (`kvcache.states`), stored beside a session: in the drive session
`State.session` of the drive that has the session's first part. It has a record, by which `rebuild.collect` knows it.

A drive takes finite numbers only, and bytes are any: 15 words of 16 bits become 16 numbers. Of each word, the first bit
of the exponent goes to the sixteenth number, so that no exponent has all its bits set.

A state belongs to one stored session and is not forked: whoever continues the session reads it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np

from kvdrive import abi
from kvdrive.kvcache.session import Session
from kvdrive.nvme.commands import Halves
from kvdrive.nvme.errors import CommandError
from kvdrive.prefix.metadata import put_record, read_record
from kvdrive.prefix.record import Record, State
from kvdrive.prefix.verify import StaleError
from kvdrive.targets.base import Target
from kvdrive.targets.queue import DriveQueue

_VALUES = abi.MAX_HEAD_DIM  # binary16 numbers in a row
_WORDS = 15  # in 16 numbers
_TOP = 14  # the bit that goes
_PLACES = np.array([*range(_TOP), _TOP + 1], np.uint16)  # of these bits in the sixteenth number
_ROWS = 1 << 15  # of a layer


def put(queue: DriveQueue, record: Record, data: bytes, tokens: int) -> State:
    """Store the state behind `tokens` tokens of a session that `record` describes. Raises CommandError, TargetError."""
    described = replace(record, indices=[], layers=[], removals=[], inputs=None, name="", part=0, parts=1, state=None)

    def work(target: Target) -> int:
        session = Session(target)
        try:
            session.put_label(bytes.fromhex(record.model))
            put_record(session, described)
            rows = _finite(data).reshape(1, -1, _VALUES)
            for layer, first in enumerate(range(0, rows.shape[1], _ROWS)):
                session.append(layer, abi.KvKind.KEYS, 0, rows[:, first : first + _ROWS])
        except BaseException:
            session.trim(0)
            raise
        return session.number

    return State(tokens, queue.run(work), len(data), hashlib.sha256(data).hexdigest())


def read(queue: DriveQueue, state: State) -> bytes:
    """What `put` stored. Raises StaleError where the drive has something else, CommandError, TargetError."""

    def work(target: Target) -> bytes:
        session = Session.existing(target, state.session, 0)
        left, found = _rows(state.bytes), []
        for layer in range(-(-left // _ROWS)):
            shape = (1, min(_ROWS, left - layer * _ROWS), _VALUES)
            found.append(session.read(layer, abi.KvKind.KEYS, 0, shape).reshape(-1))
        return _as_bytes(np.concatenate(found), state.bytes)

    data = queue.run(work)
    if hashlib.sha256(data).hexdigest() != state.sum:
        raise StaleError("another state")
    return data


def remove(queue: DriveQueue, state: State, model: str, *, erase: bool = False) -> None:
    """Remove a state of a model; a drive session that is another one by now stays. Raises CommandError, TargetError."""
    queue.run(partial(_remove, number=state.session, model=model, erase=erase))


def _remove(target: Target, number: int, model: str, *, erase: bool) -> None:
    session = Session.existing(target, number, 0)
    try:
        found = read_record(session)
    except CommandError as error:
        if error.status == abi.NvmeStatus.UNKNOWN_SESSION:
            return
        raise
    if found is None or found.model != model or found.layers:
        return
    if erase:
        session.erase()
    else:
        session.trim(0)


def _rows(size: int) -> int:
    """Rows that `size` bytes take."""
    return -(-size // (2 * _WORDS * _VALUES // (_WORDS + 1)))


def _finite(data: bytes) -> Halves:
    """Bytes as finite numbers, in whole rows."""
    room = _rows(len(data)) * 2 * _WORDS * _VALUES // (_WORDS + 1)
    words = np.frombuffer(data.ljust(room, b"\0"), "<u2").reshape(-1, _WORDS)
    tops = ((words >> _TOP & 1) << _PLACES).sum(axis=1, dtype=np.uint16)
    return np.column_stack([words & ~np.uint16(1 << _TOP), tops]).astype(np.uint16).view(np.float16).reshape(-1)


def _as_bytes(numbers: Halves, size: int) -> bytes:
    """The first `size` bytes that became these numbers."""
    stored = np.ascontiguousarray(numbers).view(np.uint16).reshape(-1, _WORDS + 1)
    words = stored[:, :_WORDS] | (stored[:, _WORDS:] >> _PLACES & 1) << _TOP
    return words.astype("<u2").tobytes()[:size]
