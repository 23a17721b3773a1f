"""The server's prefix cache: finished sequences in the prefix store, found by their tokens, also after a restart."""

from __future__ import annotations

from collections.abc import Sequence

from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.prefix.open_session import OpenSession
from kvdrive.prefix.request import Request
from kvdrive.prefix.store import PrefixStore
from kvdrive.server.idle import Taken
from kvdrive.server.store_figures import figures


class PrefixCache:
    """Has the methods of IdleSequences. Measures what `store` chooses by, so that no request waits for it."""

    def __init__(self, store: PrefixStore, bytes_per_token: int) -> None:
        self.store = store
        self._bytes_per_token = bytes_per_token
        store.costs.measure()

    def __len__(self) -> int:
        return self.store.index.count()

    def shrink(self, tokens: int) -> None:
        """Evict sessions until the others leave room for `tokens` tokens that are not on the drive yet."""
        self.store.evictor.shrink(max(tokens, 0) * self._bytes_per_token)

    def take(self, request: Request) -> Taken:
        """A cache for a request, with the stored tokens of its prompt if that is faster.

        Raises InputError for a name that is in use.
        """
        cache = self.store.cache(request.prompt, request.name, new_tokens=request.new_tokens, tenant=request.tenant)
        return Taken(cache, self.strategy(cache) or "none")

    def put(self, tokens: list[int], cache: HfCache, tenant: str = "") -> int | None:
        """Save a finished sequence. Returns the number of its session; None if it is not saved."""
        return self.store.release(cache)

    def share(self, tokens: list[int], cache: HfCache, tenant: str, others: int) -> None:
        """Save what a running sequence has, pending tokens as well: others that begin with it fork it.

        Raises CommandError, TargetError.
        """
        if isinstance(cache.batch.listener, OpenSession):
            self.store.save(cache)

    def look_ahead(self, waiting: Sequence[Request]) -> None:
        """The requests that wait now, the next one first: their sessions stay, and are loaded where there is room.

        Raises TargetError.
        """
        self.store.prefetch.see(waiting)

    def strategy(self, cache: HfCache) -> str | None:
        """The resume strategy of a running sequence; a load that was late has become a recomputation."""
        return cache.batch.listener.strategy if isinstance(cache.batch.listener, OpenSession) else None

    def drop(self, cache: HfCache) -> None:
        """Forget a sequence that failed."""
        if isinstance(cache.batch.listener, OpenSession):
            cache.batch.listener.stop("its generation failed")
        cache.reset()

    def unsaved(self, cache: HfCache) -> int:
        """Tokens of a running sequence that the index does not count yet."""
        saved = cache.batch.listener.saved if isinstance(cache.batch.listener, OpenSession) else 0
        return int(cache.get_seq_length()) - cache.batch.removed - saved

    def figures(self) -> dict[str, float]:
        """Counters and sizes for the metrics."""
        return figures(self.store.stored, self.store.governor, self.store.memory)
