"""Where the sequence of a request is while it runs, and how stored tokens get there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.memory import InMemory
from kvdrive.prefix.entry import Entry
from kvdrive.prefix.index import Index
from kvdrive.prefix.lookup import Lookup, Match
from kvdrive.prefix.memory_tier import MemoryTier
from kvdrive.prefix.rates import Rates, costs_file
from kvdrive.prefix.record import Record
from kvdrive.prefix.request import Request
from kvdrive.prefix.resume import ON_DRIVES, STRATEGIES, Costs, Strategy, Turn

if TYPE_CHECKING:
    from kvdrive.kvcache.batch import Batch


class Placements(Protocol):
    """Where the sequences of an attached model can be."""

    def on_drives(self) -> Batch:
        """An empty batch: the drives attend."""

    def fits(self, tokens: int) -> bool:
        """True if memory has room for a sequence of `tokens` tokens."""

    def in_memory(self, tokens: int) -> Batch | None:
        """An empty batch in memory for `tokens` tokens; None where there is no room, or sequences are on drives."""

    def device(self) -> torch.device:
        """Where the model is."""

    def check_model(self) -> None:
        """Look closely if the model is still the one whose identity names sessions; if not, notify all batches."""

    def measure(self) -> Rates:
        """What the model and its drives take, measured now. Raises CommandError, TargetError."""


class Planner:
    """Chooses for one store, by `costs`, among the placements of its model. `memory`: copies of idle sessions."""

    def __init__(self, placements: Placements, costs: Costs, memory: MemoryTier | None = None) -> None:
        self._placements = placements
        self._costs = costs
        self._memory = memory

    @property
    def in_memory(self) -> bool:
        """True if running sequences are in memory, as far as it has room."""
        return self._placements.fits(0)

    def recomputes(self, request: Request, lookup: Lookup) -> bool:
        """True if not even opening a session that `lookup` finds pays: everything is computed, and written, again.

        On the drives False as long as no rates are known: they attend.
        """
        in_memory = self._placements.fits(len(request.prompt) + request.new_tokens)
        if not request.prompt or not (in_memory or self._costs.known):
            return False
        known, entry = lookup.longest_prefix(request.prompt[:-1])
        if entry is None or known == 0:
            return False
        turn = self._turn(request, entry, known, in_memory=in_memory)
        return not self._costs.choose(turn, STRATEGIES if in_memory else ON_DRIVES).forks

    def place(self, request: Request, match: Match | None, *, waits: bool) -> tuple[Batch, Strategy | None]:
        """An empty batch for a request, and its resume strategy for what was found.

        `waits`: the request waits, so that all layers may be loaded before the first one computes. A sequence that lost
        tokens is never computed again: what is left depends on those that it lost.
        """
        held = 0 if match is None else len(match.tokens)
        memory = self._placements.in_memory(max(len(request.prompt), held) + request.new_tokens)
        if match is None:
            return memory or self._placements.on_drives(), None
        if memory is None:
            return self._placements.on_drives(), "attend"
        removed = Record.of(match.entry.record).removed
        turn = self._turn(request, match.entry, held, removed)
        choice = self._costs.choose(turn, STRATEGIES if request.prompt and not removed else ("load", "attend"))
        if choice.strategy == "attend":
            return self._placements.on_drives(), "attend"
        plan, placement = choice.plan, memory.placement
        assert isinstance(placement, InMemory)
        if plan is not None:
            buffer = turn.bytes if waits else min(plan.buffer_bytes, placement.options.read_buffer)
            copy = None if self._memory is None else self._memory.open(match.entry)
            plan = replace(plan, buffer_bytes=buffer, held=copy, from_memory=turn.copied)
        placement.plan = plan
        return memory, choice.strategy

    def loads(self, request: Request, known: int, entry: Entry) -> bool:
        """True if memory has room for a waiting request, and loading its `known` stored tokens pays."""
        if not self._placements.fits(len(request.prompt) + request.new_tokens):
            return False
        return self.pays(request, known, entry)

    def pays(self, request: Request, known: int, entry: Entry) -> bool:
        """True if loading `known` stored tokens of a request is the fastest."""
        return self._costs.choose(self._turn(request, entry, known), STRATEGIES).strategy == "load"

    def _turn(self, request: Request, entry: Entry, held: int, removed: int = 0, *, in_memory: bool = True) -> Turn:
        """A request that continues behind `held` tokens, all of which but `removed` are stored."""
        record = Record.of(entry.record)
        new_tokens, stored = max(len(request.prompt) - held, 1), held - removed
        size = stored * record.bytes_per_token
        copied = self._memory is not None and self._memory.whole(entry)
        return Turn(stored, new_tokens, request.new_tokens, size, len(record.layers), in_memory, copied)


def costs_of(backing: Backing, index: Index, placements: Placements) -> Costs:
    """The rates of a model on the drives of `backing`, in a file beside the index."""
    key = f"{backing.label.hex()[:16]}/{len(backing.queues)}/{torch.get_num_threads()}"
    return Costs(costs_file(index.path), key, placements.measure)
