"""The tokens of a running sequence and the keys of its blocks."""

from __future__ import annotations

from collections.abc import Callable

from kvdrive.prefix.chain import Chain, GrowingChain


class Tokens:
    """`held`: tokens of which the cache has K and V. `removed`: those that were removed behind the first `group`.

    `chain` gives the chain of the sequence as it is stored now.
    """

    def __init__(self, group: int, chain: Callable[[], Chain]) -> None:
        self.held: list[int] = []
        self.removed: list[int] = []
        self._group = group
        self._chain = chain
        self._keys: GrowingChain | None = None

    def fill(self, held: list[int], removed: list[int]) -> None:
        """Begin with stored tokens."""
        self.held, self.removed = list(held), list(removed)
        self.rename()

    def all(self, count: int) -> list[int]:
        """The first `count` held tokens, and those that were removed from between them."""
        if not self.removed:
            return self.held[:count]
        return self.held[: self._group] + self.removed + self.held[self._group : count]

    def keys(self, count: int) -> GrowingChain:
        """The keys of the whole blocks of the first `count` held tokens. `count` never shrinks but by `truncate`."""
        if self._keys is None:
            self._keys = GrowingChain(self._chain())
        self._keys.extend(self.held[:count])
        return self._keys

    def tail(self, count: int) -> list[int]:
        """The tokens behind the last whole block of the first `count`."""
        return self.held[self.keys(count).tokens : count]

    def truncate(self, count: int) -> None:
        """Drop all but the first `count` held tokens."""
        self.held = self.held[:count]
        if count == 0:
            self.removed = []
        if self._keys is not None and count < self._keys.tokens:
            self.rename()

    def remove(self, count: int) -> None:
        """`count` tokens behind the first group are removed from the cache."""
        group = self._group
        self.removed += self.held[group : group + count]
        del self.held[group : group + count]
        self.rename()

    def rename(self) -> None:
        """The layout or the removals have changed, so blocks have other keys, which are computed when asked for."""
        self._keys = None
