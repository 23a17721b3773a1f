"""Finds what the drives hold of a prompt, forks it, and compares it with the prompt before it is used."""

from __future__ import annotations

import logging
from collections.abc import Sequence as Several
from dataclasses import dataclass

from kvdrive.errors import InputError
from kvdrive.kvcache.backing import drop
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.slices import gather
from kvdrive.nvme.errors import CommandError
from kvdrive.prefix.chain import common_length
from kvdrive.prefix.entry import Entry
from kvdrive.prefix.layouts import Layouts
from kvdrive.prefix.metadata import read_tokens
from kvdrive.prefix.owner import is_alive
from kvdrive.prefix.record import Record
from kvdrive.prefix.request import Request
from kvdrive.prefix.stored import StoredSessions
from kvdrive.prefix.verify import StaleError, as_stored, verify
from kvdrive.prefix.wear import Governor

log = logging.getLogger(__name__)
_TRIES = 4  # sessions that are tried when the first ones turn out to be stale


@dataclass(frozen=True)
class Match:
    """A fork of the stored session `entry`. The drives have K and V of its `tokens`, or said to have been removed.

    `state`: what the model's layers in memory hold behind them (`kvcache.states`); empty where it has none.
    """

    entry: Entry
    sequence: Sequence
    tokens: list[int]
    state: bytes = b""


@dataclass(frozen=True)
class _Known:
    """A session that has `common` tokens of a prompt in common as far as the index knows, `whole` in whole blocks."""

    common: int
    whole: int
    entry: Entry


class Lookups:
    """What finds the sessions of each tenant. `shape`: the model's KV heads and head dimension. `with_state`: see
    Layouts.
    """

    def __init__(
        self,
        stored: StoredSessions,
        governor: Governor,
        shape: tuple[int, int],
        append_options: int,
        *,
        with_state: bool = False,
    ) -> None:
        self._stored, self._governor, self._shape, self._append_options = stored, governor, shape, append_options
        self._with_state = with_state
        self._by_tenant: dict[str, Lookup] = {}

    def of(self, tenant: str) -> Lookup:
        """What finds the sessions of a tenant."""
        if tenant not in self._by_tenant:
            layouts = Layouts(
                self._stored.backing, self._shape, tenant, self._append_options, with_state=self._with_state
            )
            self._by_tenant[tenant] = Lookup(self._stored, layouts, self._governor)
        return self._by_tenant[tenant]

    def renew(self) -> None:
        """The model has another identity."""
        for lookup in self._by_tenant.values():
            lookup.layouts.renew()


class Lookup:
    """Finds stored sessions of one model and tenant that lie on the drives in one of `layouts`."""

    def __init__(self, stored: StoredSessions, layouts: Layouts, governor: Governor) -> None:
        self.layouts = layouts
        self._stored = stored
        self._index = stored.index
        self._stats = stored.stats
        self._governor = governor

    def longest_prefix(self, ids: Several[int]) -> tuple[int, Entry | None]:
        """Tokens of the longest stored prefix of `ids` as the index knows it, and the session that has it. Forks
        nothing.
        """
        best = self._longest(ids)
        return (0, None) if best is None else (best.common, best.entry)

    def find(self, request: Request) -> Match | None:
        """Fork the longest stored prefix of the prompt without its last token; without a prompt, all of the session
        with this name.
        """
        if request.name and not request.prompt:
            entry = self._index.named(request.name, self.layouts.tenant)
            return None if entry is None else self._fork_all(entry)
        ids = list(request.prompt[:-1])
        for _ in range(_TRIES):
            best = self._longest(ids)
            if best is None or best.common == 0:
                return None
            match = self._fork(best.entry, ids, best.whole)
            if match is not None:
                return match
        return None

    def find_shortened(self, name: str, ids: Several[int]) -> Match | None:
        """Fork the session with this name if tokens were removed from its middle, and `ids` begin with all of its
        tokens up to the last removal.
        """
        entry = self._index.named(name, self.layouts.tenant)
        if entry is None or not Record.of(entry.record).removals:
            return None
        return self._fork_shortened(entry, list(ids))

    def _fork_all(self, entry: Entry) -> Match | None:
        if Record.of(entry.record).removals:
            return self._fork_shortened(entry, None)
        return self._fork(entry, None, entry.tokens)

    def _fork_shortened(self, entry: Entry, ids: list[int] | None) -> Match | None:
        """Fork a session that lost tokens, up to its last token in common with `ids` (None: all). The tokens that are
        returned include the removed ones. None if `ids` differ from it before the last removal: what is left of it
        depends on all tokens until then.
        """
        record, sequence, label = Record.of(entry.record), None, self._stored.backing.label
        try:
            with self._index.transaction():
                if self._index.get(entry.id) is None:
                    return None
                existing = self._stored.open(entry)
                stored, _ = verify(existing, entry, label, entry.tokens + record.removed)
                common = len(stored) if ids is None else common_length(stored, ids[:-1])
                if common < record.removals[-1][0]:
                    return None
                sequence = existing.fork(common - record.removed)
                self._index.use(entry.id)
                self._governor.hit()
            verify(sequence, entry, label, 0)
        except (CommandError, StaleError) as error:
            self._forget(entry, sequence, error)
            return None
        self._stats.hits += 1
        self._stats.hit_tokens += common - record.removed
        return Match(entry, sequence, stored[:common])

    def tokens_of(self, name: str) -> list[int]:
        """All tokens of the session with this name, removed ones included, as the drive has them; it proves nothing.

        Empty where this model has no such session, or the drive lost it. Raises TargetError.
        """
        entry = self._index.named(name, self.layouts.tenant) if name else None
        return [] if entry is None or not self._is_own(entry) else self._tokens(entry)

    def nearest(self, ids: Several[int]) -> list[int]:
        """All tokens of the session with the longest prefix of `ids`, as the drive has them. Where none has a whole
        block of it, of the one that was used last; it proves nothing. Empty where `ids` go on with all of a session,
        and where there is none. Raises TargetError.
        """
        common, entry = self.longest_prefix(ids)
        if common == 0:
            entry = self._index.latest([layout.chain.root for layout in self.layouts.all])
        removals = [] if entry is None else Record.of(entry.record).removals
        return [] if entry is None or common >= entry.tokens or removals else self._tokens(entry)

    def _tokens(self, entry: Entry) -> list[int]:
        one = self._stored.open(entry).slices[0]
        count = entry.tokens + Record.of(entry.record).removed
        try:
            return one.queue.run(lambda target: read_tokens(one.session, count))
        except CommandError:
            return []

    def check(self, entry: Entry) -> bool:
        """True if the drives hold all of a session's tokens; the index forgets one that they do not."""
        match = self._fork_all(entry)
        if match is None:
            return False
        drop([match.sequence])
        return True

    def require_own(self, name: str) -> None:
        """Raises InputError for a name that another model has, or a session that is in use."""
        entry = self._index.named(name, self.layouts.tenant)
        if entry is None:
            return
        record = Record.of(entry.record)
        if record.inputs is not None and record.model == self.layouts.kv.model and not self._is_own(entry):
            raise InputError(
                f"session '{name}' holds layer inputs (X-cache), stored with {record.inputs['arithmetic']}: attach the "
                "model with X-cache and that arithmetic, choose another name, or drop it first"
            )
        if not self._is_own(entry):
            raise InputError(
                f"session '{name}' was saved by another model, other weights or another precision, or for another kind "
                "of attention: choose another name, or drop it first"
            )
        if is_alive(entry.owner):
            raise InputError(f"session '{name}' is in use: end that process, or choose another name")

    def _is_own(self, entry: Entry) -> bool:
        """True if this model has saved a session."""
        removals = Record.of(entry.record).removals
        return any(entry.root == layout.chain.without(removals).root for layout in self.layouts.all)

    def _longest(self, ids: Several[int]) -> _Known | None:
        """The session with the longest prefix of `ids`, in any layout."""
        known: list[_Known] = []
        for layout in self.layouts.all:
            chain = layout.chain
            if self.layouts.with_state:
                found = self._index.prefixes(chain.root, list(chain.keys(ids)), ids)
                known += [_Known(entry.tokens, entry.tokens, entry) for entry in found[:1]]
                continue
            depth, found = self._index.find(chain.root, chain.keys(ids))
            whole = depth * chain.block
            known += [_Known(self._common(entry, whole, ids), whole, entry) for entry in found]
        return max(known, key=lambda one: one.common, default=None)

    def _common(self, entry: Entry, whole: int, ids: Several[int]) -> int:
        """Tokens that a session found by `whole` tokens has in common with `ids`, as far as the index knows."""
        if len(entry.tail) + whole != entry.tokens:
            return whole
        return whole + common_length(entry.tail, ids[whole : whole + len(entry.tail)])

    def _fork(self, entry: Entry, ids: list[int] | None, known: int) -> Match | None:
        """Fork a session up to its last token in common with `ids` (None: all), and compare them on the drive.

        At least `known` tokens must be there. A session that is not what the index says is dropped.
        """
        wanted = entry.tokens if ids is None else min(entry.tokens, len(ids))
        sequence, backing = None, self._stored.backing
        try:
            with self._index.transaction():
                if self._index.get(entry.id) is None:
                    return None
                sequence = self._stored.open(entry).fork(wanted)
                self._index.use(entry.id)
                self._governor.hit()
            stored, record = verify(sequence, entry, backing.label, wanted)
            common = wanted if ids is None else common_length(stored, ids)
            if common < min(known, wanted) or common == 0:
                raise StaleError
            state = self._stored.state(entry)
            if (record.state is not None) != self.layouts.with_state or (state and common != entry.tokens):
                raise StaleError
            if common < wanted:
                gather(sequence.trim(common))
        except (CommandError, StaleError, IndexError) as error:
            self._forget(entry, sequence, error)
            return None
        self._stats.hits += 1
        self._stats.hit_tokens += common
        return Match(entry, as_stored(sequence, backing, record, common), stored[:common], state)

    def _forget(self, entry: Entry, fork: Sequence | None, error: Exception) -> None:
        """Remove a session from the index that is not on the drives as it should be."""
        log.warning(
            "session %d is not what the index says (%s): the index forgets it", entry.id, error or "other tokens"
        )
        self._stats.stale += 1
        if fork is not None:
            drop([fork])
        with self._index.transaction():
            self._index.remove(entry.id)
