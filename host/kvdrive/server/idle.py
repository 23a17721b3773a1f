"""Finished sequences that stay in this process, for models and policies whose K and V no drive can store.

The next turn of a conversation computes only what is new. `prefix_cache` does the same for what drives store.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformers.cache_utils import Cache

from kvdrive.errors import UnsupportedError
from kvdrive.nvme.errors import CommandError
from kvdrive.prefix.chain import common_length
from kvdrive.prefix.request import Request
from kvdrive.prefix.resume import ON_DRIVES, Costs, Turn

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Taken:
    """A cache for a prompt, with the stored tokens of it. `resume`: the strategy for them: "attend" where they are,
    "load" into memory, "recompute" (that is faster), or "none" (nothing was stored).
    """

    cache: Cache
    resume: str


@dataclass
class Idle:
    """The tokens that a cache holds, and whose they are."""

    tokens: list[int]
    cache: Cache
    tenant: str


class IdleSequences:
    """The last `limit` finished sequences. `new` makes an empty cache for so many tokens.

    `costs` decides if one is used.
    """

    def __init__(self, limit: int, new: Callable[[int], Cache], costs: Costs) -> None:
        self._limit = limit
        self._new = new
        self._costs = costs
        self._idle: list[Idle] = []

    def __len__(self) -> int:
        return len(self._idle)

    @property
    def tokens(self) -> int:
        """Tokens on the drive."""
        return sum(len(idle.tokens) for idle in self._idle)

    def shrink(self, tokens: int) -> None:
        """Forget the oldest sequences until at most `tokens` tokens are left."""
        while self._idle and self.tokens > tokens:
            self._idle.pop(0).cache.reset()

    def put(self, tokens: list[int], cache: Cache, tenant: str = "") -> None:
        """Store a finished sequence. May drop the oldest one. A cache that cannot be cropped is dropped at once."""
        if cache.batch.removed or not all(layer.is_croppable for layer in cache.layers):
            cache.reset()
            return
        self._idle.append(Idle(tokens[: cache.get_seq_length()], cache, tenant))
        while len(self._idle) > self._limit:
            self._idle.pop(0).cache.reset()

    def share(self, tokens: list[int], cache: Cache, tenant: str, others: int) -> None:
        """Store copies of a running sequence for so many others that begin with its `tokens`, as far as there is room.

        The drives copy nothing. A sequence that cannot be forked is computed again by the others.
        """
        for _ in range(min(others, self._limit)):
            try:
                self.put(tokens, copy.deepcopy(cache), tenant)
            except (CommandError, UnsupportedError) as error:
                log.info("a prompt is computed again for each choice: %s", error)
                return

    def take(self, request: Request) -> Taken:
        """A cache with the first tokens of the prompt that its tenant has here, cropped to them, or an empty one.
        Sequences have no names here.
        """
        prompt, new_tokens = request.prompt, request.new_tokens
        own = [idle for idle in self._idle if idle.tenant == request.tenant]
        best = max(own, key=lambda idle: common_length(idle.tokens, prompt), default=None)
        common = 0 if best is None else min(common_length(best.tokens, prompt), len(prompt) - 1)
        if best is None or common <= 0:
            return Taken(self._new(len(prompt) + new_tokens), "none")
        turn = Turn(common, len(prompt) - common, new_tokens, 0, len(best.cache.layers), in_memory=False)
        if self._costs.known and self._costs.choose(turn, ON_DRIVES).strategy == "recompute":
            return Taken(self._new(len(prompt) + new_tokens), "recompute")
        self._idle.remove(best)
        if common < best.cache.get_seq_length():
            try:
                best.cache.crop(common - best.cache.get_seq_length())
            except (RuntimeError, UnsupportedError) as error:  # a sliding window has moved on
                log.info("a sequence cannot go back to %d tokens: %s", common, error)
                best.cache.reset()
                return Taken(self._new(len(prompt) + new_tokens), "none")
        return Taken(best.cache, "attend")

    def look_ahead(self, waiting: Sequence[Request]) -> None:
        """Nothing has to be loaded for waiting requests."""

    def strategy(self, cache: Cache) -> str | None:
        """What `take` said stays true."""
        return None

    def drop(self, cache: Cache) -> None:
        """Forget a sequence that failed."""
        cache.reset()

    def unsaved(self, cache: Cache) -> int:
        """All tokens of a running sequence: none of them counts as stored."""
        return int(cache.get_seq_length())

    def figures(self) -> dict[str, float]:
        """No counters."""
        return {}
