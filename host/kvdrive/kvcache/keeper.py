"""The interface between a cache and what keeps its tokens beyond the process (`sessions.kept`)."""

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
        """The rows of the cache are about to change places: it cannot be kept any more."""

    def model_changed(self, reason: str) -> None:
        """The model is another one now than for the tokens that the cache holds: what follows is not kept."""

    def lost(self) -> None:
        """A drive lost some of the tokens; they are about to be computed again."""

    def leave_drives(self, reason: str) -> bool:
        """The cache goes on without the drives. Returns True if they keep what was saved, as a session."""

    def make_room(self) -> bool:
        """A drive is full. Returns True if sessions were removed, so that the call may succeed now."""

    def leave(self) -> None:
        """The model is about to be detached."""
