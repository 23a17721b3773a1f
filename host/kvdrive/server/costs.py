"""Chooses between going on with a kept session and computing the prompt again, by the times measured so far."""

from __future__ import annotations

# Before both ways were measured: going on is faster if few tokens are new, because the drive attends for each of them.
_NEW_TOKENS_ALWAYS = 64
_NEW_TOKENS_SHARE = 4  # or up to a quarter of the kept tokens
_MEMORY = 0.75  # weight of what was measured before
_MARGIN = 1.05  # going on may be slower than a computation by this factor


class Costs:
    """Seconds per token, None before they were measured.

    `recompute`: of a whole prompt; `resume`: of the tokens behind a kept prefix.
    """

    def __init__(self) -> None:
        self.recompute: float | None = None
        self.resume: float | None = None

    def measured(self, new_tokens: int, cached: int, seconds: float) -> None:
        """A prompt with `cached` kept tokens and `new_tokens` others took so long until its first token."""
        rate = seconds / new_tokens
        if cached:
            self.resume = rate if self.resume is None else _MEMORY * self.resume + (1 - _MEMORY) * rate
        else:
            self.recompute = rate if self.recompute is None else _MEMORY * self.recompute + (1 - _MEMORY) * rate

    def resume_pays(self, prompt: int, cached: int) -> bool:
        """True if a prompt of `prompt` tokens should go on from `cached` kept ones."""
        new_tokens = prompt - cached
        if cached == 0:
            return False
        if new_tokens <= max(_NEW_TOKENS_ALWAYS, cached // _NEW_TOKENS_SHARE):
            return True
        if self.recompute is None or self.resume is None:
            return False
        return self.resume * new_tokens <= _MARGIN * self.recompute * prompt
