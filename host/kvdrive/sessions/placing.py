"""Where the sequence of a request is while it runs, and how stored tokens get there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kvdrive.kvcache.memory import InMemory
from kvdrive.kvcache.sequence import Sequence
from kvdrive.sessions.ahead import Waiting
from kvdrive.sessions.entry import Entry
from kvdrive.sessions.finder import Finder
from kvdrive.sessions.rates import Rates
from kvdrive.sessions.record import Record
from kvdrive.sessions.resume import ON_DRIVES, WAYS, Costs, Turn, Way

if TYPE_CHECKING:
    from kvdrive.kvcache.batch import Batch

Found = tuple[Entry, Sequence, list[int]]  # what the finder returns


class Places(Protocol):
    """Where the sequences of an attached model can be."""

    def on_drives(self) -> Batch:
        """An empty batch: the drives attend."""

    def fits(self, tokens: int) -> bool:
        """True if memory has room for a sequence of `tokens` tokens."""

    def in_memory(self, tokens: int) -> Batch | None:
        """An empty batch in memory for `tokens` tokens; None where there is no room, or sequences are on drives."""

    def check_model(self) -> None:
        """Look closely if the model is still the one whose identity names sessions; if not, tell all caches."""

    def measure(self) -> Rates:
        """What the model and its drives take, measured now. Raises CommandError, TargetError."""


class Placing:
    """Chooses for one store, by `costs`, among the places of its model."""

    def __init__(self, places: Places, costs: Costs) -> None:
        self._places = places
        self._costs = costs

    @property
    def in_memory(self) -> bool:
        """True if running sequences are in memory, as far as it has room."""
        return self._places.fits(0)

    def pays_anew(self, request: Waiting, finder: Finder) -> bool:
        """True if not even opening a session that `finder` finds pays: everything is computed, and written, again.

        On the drives False as long as no rates are known: they attend.
        """
        in_memory = self._places.fits(len(request.prompt) + request.new_tokens)
        if not request.prompt or not (in_memory or self._costs.known):
            return False
        known, entry = finder.longest_prefix(request.prompt[:-1])
        if entry is None or known == 0:
            return False
        turn = self._turn(request, entry, known, in_memory=in_memory)
        return not self._costs.choose(turn, WAYS if in_memory else ON_DRIVES).forks

    def cache_for(self, request: Waiting, found: Found | None, *, ahead: bool) -> tuple[Batch, Way | None]:
        """An empty cache for a request, and how it goes on with what was found.

        `ahead`: the request waits, so that all layers may be loaded before the first one computes.
        """
        held = 0 if found is None else len(found[2])
        memory = self._places.in_memory(max(len(request.prompt), held) + request.new_tokens)
        if found is None:
            return memory or self._places.on_drives(), None
        if memory is None or Record.of(found[0].record).removals:
            return self._places.on_drives(), "attend"
        turn = self._turn(request, found[0], held)
        choice = self._costs.choose(turn, WAYS if request.prompt else ("load", "attend"))
        if choice.way == "attend":
            return self._places.on_drives(), "attend"
        plan, placement = choice.plan, memory.placement
        assert isinstance(placement, InMemory)
        if plan is not None:
            bytes_ahead = turn.bytes if ahead else min(plan.buffer_bytes, placement.options.read_buffer)
            plan = replace(plan, buffer_bytes=bytes_ahead)
        placement.plan = plan
        return memory, choice.way

    def _turn(self, request: Waiting, entry: Entry, held: int, *, in_memory: bool = True) -> Turn:
        """A request that goes on behind `held` stored tokens."""
        told = Record.of(entry.record)
        new_tokens = max(len(request.prompt) - held, 1)
        return Turn(held, new_tokens, request.new_tokens, held * told.bytes_per_token, len(told.layers), in_memory)

    def loads(self, request: Waiting, known: int, entry: Entry) -> bool:
        """True if memory has room for a waiting request, and loading its `known` stored tokens pays."""
        if not self._places.fits(len(request.prompt) + request.new_tokens):
            return False
        return self._costs.choose(self._turn(request, entry, known), WAYS).way == "load"
