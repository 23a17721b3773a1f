"""The interface between a batch and what stores its tokens beyond the process, such as the prefix store."""

from __future__ import annotations

from typing import Any, Protocol


class Listener(Protocol):
    """Called by one batch, in the thread of the model, with what happens to its tokens, in order."""

    def called(self, arguments: dict[str, Any]) -> None:
        """A call of the model with these arguments of its forward has succeeded."""

    def checkpoints(self, first: int, end: int) -> list[int]:
        """Numbers of tokens, between `first` and `end`, after which a call that computes these tokens should stop."""

    def shrinks(self, tokens: int) -> None:
        """All but the first `tokens` tokens are about to be removed from the drives."""

    def removes(self, tokens: int) -> None:
        """`tokens` tokens behind the first group are about to be removed from the drives."""

    def removed_tokens(self, tokens: int) -> None:
        """They were removed."""

    def reordered(self) -> None:
        """The rows of the batch are about to be reordered: it cannot be stored any more."""

    def model_changed(self, reason: str) -> None:
        """The model has changed since the tokens were computed: later tokens are not stored."""

    def lost(self) -> None:
        """A drive lost some of the tokens; they are about to be computed again."""

    def runs_in_memory_alone(self, reason: str) -> bool:
        """The batch continues without the drives. Returns True if they hold what was saved, as a session."""

    def make_room(self) -> bool:
        """A drive is full. Returns True if sessions were evicted, so that the call may succeed now."""

    def detaching(self) -> None:
        """The model is about to be detached."""
