"""The index made again from what the drives' sessions say about themselves, and orphans removed.

A session that carries a record belongs to a store (`record`). Its chain ends where its last save ended; K and V of
these tokens were there before the chain.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial

from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.session import Session
from kvdrive.nvme.errors import CommandError
from kvdrive.prefix.chain import GrowingChain
from kvdrive.prefix.entry import describe
from kvdrive.prefix.index import Index
from kvdrive.prefix.metadata import chain_tokens, holds, read_record, read_tokens, stored_tokens
from kvdrive.prefix.record import Record
from kvdrive.targets.base import Target

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """A part of a session on drive number `drive`."""

    drive: int
    session: Session
    record: Record
    tokens: list[int]


def rebuild(index: Index, backing: Backing) -> int:
    """Fill a new index. Returns the number of sessions. Raises TargetError."""
    whole: dict[tuple[str, tuple[int, ...]], list[Found]] = defaultdict(list)
    for found in _survey(backing, with_tokens=True):
        if not found.record.usable:
            continue  # a process was killed while it removed tokens
        if found.record.state is not None and found.record.state.tokens != len(found.tokens):
            continue  # a process was killed while it saved: what was saved before is a session of its own
        plain = replace(found.record, part=0, first=0, last=0).text()
        whole[plain, tuple(found.tokens)].append(found)
    count = 0
    with index.transaction():
        for (_, tokens), parts in sorted(whole.items(), key=lambda item: -len(item[0][1])):
            for one in _complete(parts):
                _add(index, one, list(tokens))
                count += 1
        index.read_sidecar()
        index.filled()
    return count


def collect(index: Index, backing: Backing) -> int:
    """Trim sessions of a store that the index does not name: a process was killed before it could. Returns how many.

    Precondition: no other process and no other index uses these drives.
    """
    named = index.places()
    orphans = [
        found for found in _survey(backing, with_tokens=False) if (found.drive, found.session.number) not in named
    ]
    for orphan in orphans:
        backing.queues[orphan.drive].run(partial(_trim, orphan.session))
    return len(orphans)


def _survey(backing: Backing, *, with_tokens: bool) -> list[Found]:
    """The sessions on all drives that carry a record. One that cannot be read is left alone, and said."""
    found: list[Found] = []

    def look(drive: int, target: Target) -> None:
        for number in sorted(target.sessions()):
            session = Session.existing(target, number, 0)
            try:
                record = read_record(session)
                if record is None:
                    continue
                tokens = _tokens(session, record) if with_tokens else []
            except CommandError as error:
                log.warning("session %d on %s is left alone: %s", number, target.place, error)
                continue
            if tokens or not with_tokens:
                found.append(Found(drive, session, record, tokens))

    for drive, queue in enumerate(backing.queues):
        queue.run(partial(look, drive))
    return found


def _trim(session: Session, target: Target) -> None:
    session.trim(0)


def _tokens(session: Session, record: Record) -> list[int]:
    """The tokens of which K and V, or X, are there in every layer. Raises CommandError."""
    count = max(chain_tokens(session) - record.removed, 0)
    for layer, kind, heads, numbers in record.lists():
        if count and heads and not holds(session, layer, kind, count - 1, numbers):
            count = min(count, stored_tokens(session, layer, kind, numbers))
    return read_tokens(session, count + record.removed) if count else []


def _complete(parts: list[Found]) -> list[list[Found]]:
    """Sessions of which every part was found. Parts with the same tokens may stand for each other."""
    by_part: dict[int, list[Found]] = defaultdict(list)
    for found in parts:
        by_part[found.record.part].append(found)
    needed = parts[0].record.parts
    return [list(together) for together in zip(*(by_part[part] for part in range(needed)), strict=False)]


def _add(index: Index, parts: list[Found], tokens: list[int]) -> None:
    record = parts[0].record
    held, _ = record.split(tokens)
    keys = GrowingChain(record.chain)
    keys.extend(held)
    slices = [[part.drive, part.session.number, part.record.first, part.record.last] for part in parts]
    new = describe(record, slices, held, keys)
    if record.name and index.named(record.name, record.tenant) is not None:
        new.name = ""
    index.add(new, keys.keys)
