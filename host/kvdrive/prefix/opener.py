"""Opens a session for each request: with what the drives have of its prompt, or empty."""

from __future__ import annotations

from kvdrive.kvcache.backing import drop
from kvdrive.prefix.context import Context
from kvdrive.prefix.lookup import Lookups
from kvdrive.prefix.open_session import OpenSession
from kvdrive.prefix.placement import Planner
from kvdrive.prefix.request import Request


class Opener:
    """`lookups` find stored prefixes, `planner` chooses where a sequence runs. `opened`: the sessions that are open."""

    def __init__(self, context: Context, lookups: Lookups, planner: Planner) -> None:
        self.lookups = lookups
        self.planner = planner
        self._context = context
        self._opened: list[OpenSession] = []

    @property
    def opened(self) -> list[OpenSession]:
        """The sessions that are open."""
        self._opened = [one for one in self._opened if one.is_open]
        return self._opened

    def open(self, request: Request, *, find: bool = True, waits: bool = False) -> OpenSession:
        """A session for a request. `find` False: an empty one, unless tokens were removed from the one of its name.

        `waits`: the request waits, so all layers may be loaded before the first one computes. Raises InputError,
        UnsupportedError, CommandError, TargetError.
        """
        stats, lookup = self._context.stored.stats, self.lookups.of(request.tenant)
        match, recomputes = None, False
        if request.name:
            lookup.require_own(request.name)
            match = lookup.find_shortened(request.name, request.prompt) if request.prompt else None
        if find and match is None:
            recomputes = self.planner.recomputes(request, lookup)
            match = None if recomputes else lookup.find(request)
        stats.lookups += find or match is not None
        try:
            batch, strategy = self.planner.place(request, match, waits=waits)
        except BaseException:
            if match is not None:
                drop([match.sequence])
            raise
        session = OpenSession(
            self._context, batch, lookup.layouts, request.name, "recompute" if recomputes else strategy
        )
        stats.count(session.strategy)
        stats.memory_hits += batch.placement.loads_from_memory
        if match is not None:
            session.resume(match)
        elif request.prompt and not session.admits(list(request.prompt)):
            batch.placement.write_nothing()
        self._opened.append(session)
        return session
