"""The interface between a cache and the store of sessions (`sessions.kept`)."""

from __future__ import annotations

from typing import Any, Protocol


class Keeper(Protocol):
    """Told by one cache what happens to its tokens, in the order in which it happens."""

    def called(self, arguments: dict[str, Any]) -> None:
        """A call of the model with these arguments of its forward has succeeded."""

    def shrinks(self, tokens: int) -> None:
        """All but the first `tokens` tokens are about to be removed from the drives."""

    def removes(self, tokens: int) -> None:
        """`tokens` tokens behind the first group are about to be removed from the drives."""

    def removed_tokens(self, tokens: int) -> None:
        """They were removed."""

    def released(self) -> None:
        """The rows of the cache are about to be reordered: it cannot be stored any more."""

    def model_changed(self, reason: str) -> None:
        """The model has changed since the tokens in the cache were computed: later tokens are not stored."""

    def lost(self) -> None:
        """A drive lost some of the tokens; they are about to be computed again."""

    def leave_drives(self, reason: str) -> bool:
        """The cache goes on without the drives. Returns True if they keep what was saved, as a session."""

    def make_room(self) -> bool:
        """A drive is full. Returns True if sessions were removed, so that the call may succeed now."""

    def leave(self) -> None:
        """The model is about to be detached."""
