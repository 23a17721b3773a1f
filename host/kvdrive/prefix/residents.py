"""Which stored sessions are in memory as well. The memory tier and replays of traces both decide by this class."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from kvdrive.prefix.entry import NewEntry
from kvdrive.prefix.eviction import make_eviction
from kvdrive.prefix.eviction.queue_aware import QueueAware
from kvdrive.prefix.index import Index


class Residents:
    """Whole sessions by their numbers, of at most `limit` bytes together. `eviction`: the name of the policy by which
    others leave for a new one. `clock` gives seconds.
    """

    def __init__(self, limit: int, eviction: str, clock: Callable[[], float] = time.time) -> None:
        self.limit = limit
        self._index = Index(":memory:", clock)
        self._policy = make_eviction(eviction)
        self._places: dict[int, int] = {}  # session -> its number in the index
        self._names = count(1)

    def __contains__(self, session: int) -> bool:
        return session in self._places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def bytes(self) -> int:
        """Of all of them."""
        return self._index.accounts.bytes()

    def use(self, session: int) -> None:
        """A resident session was used."""
        with self._index.transaction():
            self._index.use(self._places[session])

    def pin(self, session: int, *, pinned: bool) -> None:
        """A pinned session does not leave for others."""
        with self._index.transaction():
            self._index.set(self._places[session], pinned=pinned)

    def admit(self, session: int, size: int, wanted: Callable[[], Iterable[int]]) -> list[int]:
        """Put a session in that is not there. Returns those that leave for it, and itself if it does not get in.

        `wanted`: the sessions that waiting requests will use, the next request first.
        """
        if size > self.limit:
            return [session]
        name, gone = next(self._names), list[int]()
        new = NewEntry(name, "", "", [[0, session, 0, 1]], "", size, 1, tokens=1, last=name)
        with self._index.transaction():
            self._places[session] = self._index.add(new, [name])
            if self.bytes > self.limit and isinstance(self._policy, QueueAware):
                self._policy.look_ahead([self._places[one] for one in wanted() if one in self._places])
            while self.bytes > self.limit:
                victim = self._policy.victim(self._index)
                leaver = session if victim is None else victim.slices[0][1]
                self._remove(leaver)
                gone.append(leaver)
        return gone

    def forget(self, session: int) -> None:
        """A session leaves, if it is there."""
        if session in self._places:
            with self._index.transaction():
                self._remove(session)

    def missing(self, wanted: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Of sessions with their sizes, the next request's first, those to bring in: as many as fit together."""
        room = self.limit
        for session, size in wanted:
            room -= size
            if room < 0:
                return
            if session not in self:
                yield session, size

    def close(self) -> None:
        """Forget all."""
        self._places.clear()
        self._index.close()

    def _remove(self, session: int) -> None:
        self._index.remove(self._places.pop(session))
