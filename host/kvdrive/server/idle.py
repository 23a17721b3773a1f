"""Finished sequences that stay on the drive, so that the next turn of a conversation computes only what is new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from transformers.cache_utils import Cache

# The drive computes the tokens after a kept sequence one at a time; a prefill on the host computes them together. So a
# kept sequence is faster only if few tokens are new.
_NEW_TOKENS_ALWAYS = 64
_NEW_TOKENS_SHARE = 4  # or up to a quarter of the kept tokens


@dataclass
class Kept:
    """The tokens that a cache holds."""

    tokens: list[int]
    cache: Cache


class IdleSequences:
    """The last `limit` finished sequences. `forget` takes their caches off the drive."""

    def __init__(self, limit: int, forget: Callable[[Cache], None]) -> None:
        self._limit = limit
        self._forget = forget
        self._kept: list[Kept] = []

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def tokens(self) -> int:
        """Tokens on the drive."""
        return sum(len(kept.tokens) for kept in self._kept)

    def shrink(self, tokens: int) -> None:
        """Forget the oldest sequences until at most `tokens` tokens are left."""
        while self._kept and self.tokens > tokens:
            self._forget(self._kept.pop(0).cache)

    def keep(self, tokens: list[int], cache: Cache) -> None:
        """Keep a finished sequence. May drop the oldest one. A cache that cannot be cropped is dropped at once."""
        if not all(layer.is_croppable for layer in cache.layers):
            self._forget(cache)
            return
        self._kept.append(Kept(tokens[: cache.get_seq_length()], cache))
        while len(self._kept) > self._limit:
            self._forget(self._kept.pop(0).cache)

    def take(self, prompt: list[int]) -> Cache | None:
        """A cache with the first tokens of `prompt`, cropped to them; None if a prefill is faster."""
        best = max(self._kept, key=lambda kept: _common(kept.tokens, prompt), default=None)
        if best is None:
            return None
        common = min(_common(best.tokens, prompt), len(prompt) - 1)
        if len(prompt) - common > max(_NEW_TOKENS_ALWAYS, common // _NEW_TOKENS_SHARE) or common == 0:
            return None
        self._kept.remove(best)
        best.cache.crop(common - best.cache.get_seq_length())
        return best.cache

    def clear(self) -> None:
        """Forget all sequences."""
        while self._kept:
            self._forget(self._kept.pop().cache)


def _common(a: list[int], b: list[int]) -> int:
    """Length of the common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
