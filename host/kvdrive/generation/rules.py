"""What a request asks of the tokens of its answer, beside how they are sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor


@dataclass(frozen=True)
class Rules:
    """`ends`: tokens that end the answer and are no part of it; none of them comes before `least` new tokens.

    `bias`: is added to the logits of these tokens. Tokens that were there before are less likely by three numbers:
    `repetition` divides (logits below 0: multiplies) those of the prompt and the answer, 1: not; of those of the answer
    alone, `presence` is subtracted once, and `frequency` for each time that they came.
    """

    ends: frozenset[int] = frozenset()
    least: int = 0
    bias: Mapping[int, float] = field(default_factory=dict)
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0

    def applied(self, logits: torch.Tensor, prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
        """Logits float32 [1, vocabulary] of the token behind `prompt` and `answer`. Those that are given stay."""
        if self.repetition != 1.0:
            ids = torch.tensor([[*prompt, *answer]])
            logits = RepetitionPenaltyLogitsProcessor(self.repetition)(ids, logits)
        change = dict(self.bias)
        if self.presence or self.frequency:
            for token, count in Counter(answer).items():
                change[token] = change.get(token, 0.0) - self.presence - self.frequency * count
        if len(answer) < self.least:
            change |= dict.fromkeys(self.ends, -torch.inf)
        if not change:
            return logits
        tokens = torch.tensor([*change])
        logits = logits.clone()
        logits[0, tokens] += torch.tensor([*change.values()], dtype=logits.dtype)
        return logits
