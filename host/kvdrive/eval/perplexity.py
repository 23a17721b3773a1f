"""Perplexity of the same tokens after contexts of different lengths: how much a model gains from what is far back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from kvdrive.errors import InputError
from kvdrive.eval.scoring import prefill, score
from kvdrive.eval.statistics import over_windows
from kvdrive.eval.tasks import Tokens

NewCache = Callable[[], Any]
OnStep = Callable[[], None]


@dataclass(frozen=True)
class Perplexity:
    """`nats`: mean per token over all windows. `standard_error`: over windows, None for a single window."""

    context: int
    windows: int
    tokens: int
    nats: float
    standard_error: float | None

    @property
    def perplexity(self) -> float:
        """exp(nats)."""
        return math.exp(self.nats)


def windows(documents: Sequence[Tokens], context: int, targets: int, count: int) -> list[Tokens]:
    """`count` windows of `context` + `targets` consecutive tokens of one document each, that do not overlap.

    Windows come in turn from all documents that are long enough. Raises InputError when there are fewer than `count`.
    """
    size = context + targets
    pieces = [[text[i : i + size] for i in range(0, len(text) - size + 1, size)] for text in documents]
    rounds = max((len(piece) for piece in pieces), default=0)
    found = [piece[i] for i in range(rounds) for piece in pieces if i < len(piece)]
    if len(found) < count:
        raise InputError(
            f"the text gives {len(found)} windows of {size} tokens, not {count}: name longer text, a shorter context "
            "or fewer windows"
        )
    return found[:count]


def summarise(context: int, nats: Sequence[Sequence[float]]) -> Perplexity:
    """One row from the nats of each window's targets."""
    mean, error = over_windows(nats)
    return Perplexity(context, len(nats), sum(map(len, nats)), mean, error)


def by_context(
    model: PreTrainedModel,
    texts: Sequence[Tokens],
    lengths: Sequence[int],
    targets: int,
    new_cache: NewCache,
    on_step: OnStep | None = None,
) -> list[Perplexity]:
    """Perplexity for each length c: of the last `targets` tokens of each text, after the c tokens before them.

    The i-th target also sees the i targets before it. `new_cache` makes an empty cache; `on_step` is called
    len(texts) * len(lengths) times.
    """
    rows = []
    for length in lengths:
        nats = []
        for text in texts:
            context, target = text[-targets - length : -targets], text[-targets:]
            cache = new_cache()
            prefill(model, context, cache)
            nats.append(score(model, int(context[-1]), target, cache).nats.tolist())
            release(cache)
            if on_step:
                on_step()
        rows.append(summarise(length, nats))
    return rows


def release(cache: Any) -> None:
    """Reset a drive's cache. A stock cache needs nothing: it is freed with its last reference."""
    if hasattr(cache, "sessions"):
        cache.reset()
