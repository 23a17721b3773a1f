"""Compares tokens with stock llama.cpp: the same libraries, with K and V in memory and without the plugin's device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvdrive.llama.context import Context
from kvdrive.llama.model import Model

TIE = 0.05  # of logits, between which stock's own kernels of attention change the order


@dataclass(frozen=True)
class Compared:
    """Of `total` tokens: those that stock llama.cpp rates most likely, and those that it rates within TIE of these."""

    total: int
    identical: int
    near: int

    @property
    def passed(self) -> bool:
        """True if stock may have said each token."""
        return self.identical + self.near == self.total

    @property
    def verdict(self) -> str:
        """One line."""
        line = f"tokens that stock llama.cpp rates most likely: {self.identical}/{self.total}"
        return f"{line}, and {self.near} within {TIE} of these, where its own kernels differ" if self.near else line


def compared(
    stock: Model,
    prompt: Sequence[int],
    tokens: Sequence[int],
    on_tokens: Callable[[int], None] = lambda count: None,
) -> Compared:
    """What `stock`, a model without a drive, says of each of `tokens` behind the prompt and those before it.

    `on_tokens` is called with the number of those that were compared.
    """
    assert stock.plugin is None, "K and V are in memory"
    identical = near = 0
    with Context(stock, len(prompt) + len(tokens)) as context:
        sequence = context.sequences[0]
        logits = sequence.extend(prompt)
        for count, token in enumerate(tokens, start=1):
            behind = float(logits.max() - logits[token])
            identical += int(logits.argmax()) == token
            near += int(logits.argmax()) != token and behind < TIE
            on_tokens(count)
            if count < len(tokens):
                logits = sequence.extend([token])
    return Compared(len(tokens), identical, near)
