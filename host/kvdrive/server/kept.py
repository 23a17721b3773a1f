"""The finished sequences of the server in the store of sessions: found by their tokens, also after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.server.idle import Taken
from kvdrive.sessions.ahead import Waiting
from kvdrive.sessions.kept import KeptSequence
from kvdrive.sessions.store import SessionStore


class KeptSequences:
    """Has the methods of IdleSequences. Measures what `store` chooses by, so that no request waits for it."""

    def __init__(self, store: SessionStore, bytes_per_token: int) -> None:
        self.store = store
        self._bytes_per_token = bytes_per_token
        store.costs.measure()

    def __len__(self) -> int:
        return self.store.index.count()

    def shrink(self, tokens: int) -> None:
        """Remove sessions until the others leave room for `tokens` tokens that are not on the drive yet."""
        self.store.shelf.shrink(max(tokens, 0) * self._bytes_per_token)

    def take(self, prompt: list[int], name: str, new_tokens: int, tenant: str = "") -> Taken:
        """A cache for `prompt`, with the tokens that `tenant` has kept of it if that is faster.

        Raises InputError for a name that is in use.
        """
        cache = self.store.cache(prompt, name, new_tokens=new_tokens, tenant=tenant)
        return Taken(cache, self.way(cache) or "none")

    def keep(self, tokens: list[int], cache: HfCache, tenant: str = "") -> int | None:
        """Save a finished sequence. Returns the number of its session; None if it is not kept."""
        if isinstance(cache.batch.listener, KeptSequence):
            return self.store.release(cache)
        cache.reset()
        return None

    def look_ahead(self, waiting: Sequence[Waiting]) -> None:
        """The requests that wait now, the next one first: their sessions stay, and are loaded where there is room.

        Raises TargetError.
        """
        self.store.ahead.see(waiting)

    def way(self, cache: HfCache) -> str | None:
        """How a running sequence goes on with its history; a load that was late has become a recomputation."""
        return cache.batch.listener.way if isinstance(cache.batch.listener, KeptSequence) else None

    def drop(self, cache: HfCache) -> None:
        """Forget a sequence that failed."""
        if isinstance(cache.batch.listener, KeptSequence):
            cache.batch.listener.stop("its generation failed")
        cache.reset()

    def unsaved(self, cache: HfCache) -> int:
        """Tokens of a running sequence that the index does not count yet."""
        kept = cache.batch.listener
        return int(cache.get_seq_length()) - cache.batch.removed - (kept.saved if isinstance(kept, KeptSequence) else 0)

    def figures(self) -> dict[str, float]:
        """Counters and sizes for the metrics."""
        wear = self.store.governor.wear()
        return {
            **asdict(self.store.stats),
            "kept": self.store.index.count(),
            "kept_bytes": self.store.index.bytes(),
            "bytes_written": wear.bytes_written,
            "bytes_today": wear.bytes_today,
            "bytes_per_hit": wear.bytes_per_hit or 0,
            "admits_all": wear.state == "open",
            "refused": wear.refused,
        }
