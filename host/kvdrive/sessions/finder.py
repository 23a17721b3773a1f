"""Finds what the drives hold of a prompt, forks it, and compares it with the prompt before it is used."""

from __future__ import annotations

import logging
from collections.abc import Sequence as Several
from dataclasses import dataclass

from kvdrive.errors import InputError
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.session import Session
from kvdrive.kvcache.slices import gather
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.errors import CommandError
from kvdrive.sessions import record
from kvdrive.sessions.entry import Entry
from kvdrive.sessions.layouts import Layouts
from kvdrive.sessions.owner import is_alive
from kvdrive.sessions.record import Record
from kvdrive.sessions.shelf import Shelf, trim_all
from kvdrive.sessions.wear import Governor

log = logging.getLogger(__name__)
_TRIES = 4  # sessions that are tried when the first ones turn out to be stale


@dataclass(frozen=True)
class _Known:
    """A session that has `common` tokens of a prompt in common as far as the index knows, `whole` in whole blocks."""

    common: int
    whole: int
    entry: Entry


class Finder:
    """Finds sessions of one model and tenant that lie on the drives in one of `layouts`."""

    def __init__(self, shelf: Shelf, layouts: Layouts, governor: Governor) -> None:
        self.index = shelf.index
        self.stats = shelf.stats
        self._shelf = shelf
        self.layouts = layouts
        self._governor = governor

    def longest_prefix(self, ids: Several[int]) -> tuple[int, Entry | None]:
        """Tokens of the longest kept prefix of `ids` as the index knows it, and the session that has it. Forks
        nothing.
        """
        best = self._longest(ids)
        return (0, None) if best is None else (best.common, best.entry)

    def find(self, ids: list[int]) -> tuple[Entry, Sequence, list[int]] | None:
        """Fork the longest kept prefix of `ids` without its last token."""
        ids = ids[:-1]
        for _ in range(_TRIES):
            best = self._longest(ids)
            if best is None or best.common == 0:
                return None
            forked = self._fork(best.entry, ids, best.whole)
            if forked is not None:
                return best.entry, *forked
        return None

    def find_named(self, name: str) -> tuple[Entry, Sequence, list[int]] | None:
        """Fork all of the session with this name; None without one."""
        entry = self.index.named(name, self.layouts.tenant)
        if entry is None:
            return None
        forked = self._fork_all(entry)
        return None if forked is None else (entry, *forked)

    def find_shortened(self, name: str, ids: list[int]) -> tuple[Entry, Sequence, list[int]] | None:
        """Fork the session with this name if tokens were removed from its middle, and `ids` begin with all of its
        tokens up to the last removal.
        """
        entry = self.index.named(name, self.layouts.tenant)
        if entry is None or not Record.of(entry.record).removals:
            return None
        forked = self._fork_shortened(entry, ids)
        return None if forked is None else (entry, *forked)

    def _fork_all(self, entry: Entry) -> tuple[Sequence, list[int]] | None:
        if Record.of(entry.record).removals:
            return self._fork_shortened(entry, None)
        return self._fork(entry, None, entry.tokens)

    def _fork_shortened(self, entry: Entry, ids: list[int] | None) -> tuple[Sequence, list[int]] | None:
        """Fork a session that lost tokens, up to its last token in common with `ids` (None: all). The tokens that are
        returned include the removed ones. None if `ids` differ from it before the last removal: what is left of it
        depends on all tokens until then.
        """
        told, sequence = Record.of(entry.record), None
        try:
            with self.index.transaction():
                if self.index.get(entry.id) is None:
                    return None
                existing = self._shelf.existing(entry)
                stored, _ = self._verify(existing, entry, entry.tokens + told.removed)
                common = len(stored) if ids is None else common_length(stored, ids[:-1])
                if common < told.removals[-1][0]:
                    return None
                sequence = existing.fork(common - told.removed)
                self.index.use(entry.id)
                self._governor.hit()
            self._verify(sequence, entry, 0)
        except (CommandError, _StaleError) as error:
            self._forget(entry, sequence, error)
            return None
        self.stats.hits += 1
        self.stats.hit_tokens += common - told.removed
        return sequence, stored[:common]

    def tokens_of(self, name: str) -> list[int]:
        """All tokens of the session with this name, removed ones included, as the drive has them; it proves nothing.

        Empty where this model has no such session, or the drive lost it. Raises TargetError.
        """
        entry = self.index.named(name, self.layouts.tenant) if name else None
        if entry is None or not self._is_own(entry):
            return []
        one = self._shelf.existing(entry).slices[0]
        count = entry.tokens + Record.of(entry.record).removed
        try:
            return one.queue.run(lambda target: record.read_tokens(one.session, count))
        except CommandError:
            return []

    def check(self, entry: Entry) -> bool:
        """True if the drives hold all of a session's tokens; the index forgets one that they do not."""
        forked = self._fork_all(entry)
        if forked is None:
            return False
        trim_all([forked[0]])
        return True

    def require_own(self, name: str) -> None:
        """Raises InputError for a name that another model has, or a session that is in use."""
        entry = self.index.named(name, self.layouts.tenant)
        if entry is None:
            return
        told = Record.of(entry.record)
        if told.inputs is not None and told.model == self.layouts.kv.model and not self._is_own(entry):
            raise InputError(
                f"session '{name}' holds layer inputs (X-cache), stored with {told.inputs['arithmetic']}: attach the "
                "model with X-cache and that arithmetic, choose another name, or drop it first"
            )
        if not self._is_own(entry):
            raise InputError(
                f"session '{name}' was kept by another model, other weights or another precision, or for another kind "
                "of attention: choose another name, or drop it first"
            )
        if is_alive(entry.owner):
            raise InputError(f"session '{name}' is in use: end that process, or choose another name")

    def _is_own(self, entry: Entry) -> bool:
        """True if this model has kept a session."""
        removals = Record.of(entry.record).removals
        return any(entry.root == layout.chain.without(removals).root for layout in self.layouts.all)

    def _longest(self, ids: Several[int]) -> _Known | None:
        """The session with the longest prefix of `ids`, in any layout."""
        known: list[_Known] = []
        for layout in self.layouts.all:
            chain = layout.chain
            depth, found = self.index.find(chain.root, chain.keys(ids))
            whole = depth * chain.block
            known += [_Known(self._common(entry, whole, ids), whole, entry) for entry in found]
        return max(known, key=lambda one: one.common, default=None)

    def _common(self, entry: Entry, whole: int, ids: Several[int]) -> int:
        """Tokens that a session found by `whole` tokens has in common with `ids`, as far as the index knows."""
        if len(entry.tail) + whole != entry.tokens:
            return whole
        return whole + common_length(entry.tail, ids[whole : whole + len(entry.tail)])

    def _fork(self, entry: Entry, ids: list[int] | None, known: int) -> tuple[Sequence, list[int]] | None:
        """Fork a session up to its last token in common with `ids` (None: all), and compare them on the drive.

        At least `known` tokens must be there. A session that is not what the index says is dropped.
        """
        wanted = entry.tokens if ids is None else min(entry.tokens, len(ids))
        sequence: Sequence | None = None
        try:
            with self.index.transaction():
                if self.index.get(entry.id) is None:
                    return None
                sequence = self._shelf.existing(entry).fork(wanted)
                self.index.use(entry.id)
                self._governor.hit()
            stored, told = self._verify(sequence, entry, wanted)
            common = wanted if ids is None else common_length(stored, ids)
            if common < min(known, wanted) or common == 0:
                raise _StaleError
            if common < wanted:
                gather(sequence.trim(common))
        except (CommandError, _StaleError, IndexError) as error:
            self._forget(entry, sequence, error)
            return None
        self.stats.hits += 1
        self.stats.hit_tokens += common
        return self._as_stored(sequence, told, common), stored[:common]

    def _as_stored(self, sequence: DriveSequence, told: Record, tokens: int) -> Sequence:
        """A fork of `tokens` tokens as a row of K and V or of layer inputs. `told`: the record on the drive."""
        shared = self._shelf.backing.xcache
        if told.inputs is None or shared is None:
            return sequence
        plain = {"positions": range(tokens), "layers": told.inputs["layers"]}
        return InputSequence.restored(sequence, shared, tokens, plain)

    def _forget(self, entry: Entry, fork: Sequence | None, error: Exception) -> None:
        """Remove a session from the index that is not on the drives as it should be."""
        log.warning(
            "session %d is not what the index says (%s): the index forgets it", entry.id, error or "other tokens"
        )
        self.stats.stale += 1
        if fork is not None:
            trim_all([fork])
        with self.index.transaction():
            self.index.remove(entry.id)

    def _verify(self, sequence: DriveSequence, entry: Entry, count: int) -> tuple[list[int], Record]:
        """The tokens that every part of a forked session names, and its record. Raises _StaleError, CommandError."""

        def look(session: Session) -> tuple[bytes, Record | None, list[int]]:
            return session.label(), record.read_record(session), record.read_tokens(session, count)

        parts = sequence.each(look)
        expected = Record.of(entry.record)
        for part, (label, found, tokens) in enumerate(parts):
            if label != self._shelf.backing.label or found is None or tokens != parts[0][2]:
                raise _StaleError
            if (
                found.model != expected.model
                or found.layers != expected.layers
                or found.removals != expected.removals
                or not found.usable
                or found.part != part
                or found.parts != len(parts)
                or found.layout != expected.layout
            ):
                raise _StaleError
        _, told, tokens = parts[0]
        assert told is not None
        return tokens, told


class _StaleError(Exception):
    """A session is not what the index says."""


def common_length(a: Several[int] | str, b: Several[int] | str) -> int:
    """Length of the common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
