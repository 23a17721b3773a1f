"""How the next token is chosen from logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_COLDEST = 1e-5  # at lower temperatures only the most likely token has a probability in binary32


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. `temperature` 0: the most likely one; `top_k` 0 and `top_p` 1: no limit.

    `min_p`: only tokens that are at least so many times as likely as the most likely one; 0: all.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """True if it is always the most likely token."""
        return self.temperature < _COLDEST


GREEDY = Sampling()


def choose(logits: torch.Tensor, sampling: Sampling, generator: torch.Generator) -> torch.Tensor:
    """Next tokens [batch] int64 from logits [batch, vocabulary] float32."""
    if sampling.greedy:
        return logits.argmax(-1)
    import torch
    from transformers.generation.logits_process import (
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    none = torch.empty(0)
    logits = TemperatureLogitsWarper(sampling.temperature)(none, logits)
    if sampling.top_k:
        logits = TopKLogitsWarper(min(sampling.top_k, logits.shape[-1]))(none, logits)
    if sampling.top_p < 1:
        logits = TopPLogitsWarper(sampling.top_p)(none, logits)
    if sampling.min_p:
        logits = MinPLogitsWarper(sampling.min_p)(none, logits)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]


class Chooser:
    """Chooses the tokens of one text, as `choose` does. Without sampling it needs no torch."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._generator: Any = None
        if not sampling.greedy:
            import torch

            self._generator = torch.Generator().manual_seed(sampling.seed)

    def __call__(self, logits: NDArray[np.float32]) -> int:
        """The next token, from logits [vocabulary]; of several most likely ones the first."""
        if self._generator is None:
            return int(logits.argmax())
        import torch

        return int(choose(torch.from_numpy(logits)[None], self._sampling, self._generator)[0])
