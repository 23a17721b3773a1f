"""Compares a stored session with what the index says of it, before its tokens are used."""

from __future__ import annotations

from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.session import Session
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.prefix.entry import Entry
from kvdrive.prefix.metadata import read_record, read_tokens
from kvdrive.prefix.record import Record


class StaleError(Exception):
    """A session is not what the index says."""


def verify(sequence: DriveSequence, entry: Entry, label: bytes, count: int) -> tuple[list[int], Record]:
    """The first `count` tokens that every part of a session or its fork names, and its record. `label`: the model's.

    Raises StaleError, CommandError.
    """

    def look(session: Session) -> tuple[bytes, Record | None, list[int]]:
        return session.label(), read_record(session), read_tokens(session, count)

    parts = sequence.each(look)
    expected = Record.of(entry.record)
    for part, (found_label, found, tokens) in enumerate(parts):
        if found_label != label or found is None or tokens != parts[0][2]:
            raise StaleError
        if (
            found.model != expected.model
            or found.layers != expected.layers
            or found.removals != expected.removals
            or found.state != expected.state
            or not found.usable
            or found.part != part
            or found.parts != len(parts)
            or found.layout != expected.layout
        ):
            raise StaleError
    _, record, tokens = parts[0]
    assert record is not None
    return tokens, record


def as_stored(
    sequence: DriveSequence, backing: Backing, record: Record, tokens: int, positions: list[int] | None = None
) -> Sequence:
    """A fork of `tokens` tokens as a row of K and V or of layer inputs. `record`: the one that it was saved with.

    `positions`: of the tokens of layer inputs; None: their numbers.
    """
    if record.inputs is None or backing.xcache is None:
        return sequence
    places = range(tokens) if positions is None else positions
    return InputSequence.restored(sequence, backing.xcache, tokens, places, record.inputs["layers"])
