"""Accuracy of retrieval tasks: a case is right when each token of its answer that counts is the model's choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedModel

from kvdrive.eval.perplexity import NewCache, OnStep, release
from kvdrive.eval.scoring import prefill, score
from kvdrive.eval.tasks import Case, that_count


@dataclass(frozen=True)
class Accuracy:
    """`exact`: share of cases whose whole answer is right. `tokens`: share of right tokens in all answers."""

    task: str
    context: int
    cases: int
    exact: float
    tokens: float


def answered(model: PreTrainedModel, case: Case, new_cache: NewCache) -> list[bool]:
    """Which of the answer's tokens that count are the model's first choice, given the ones before them."""
    cache = new_cache()
    prefill(model, case.prompt, cache)
    right = score(model, int(case.prompt[-1]), case.answer, cache).first
    release(cache)
    return that_count(right.tolist(), case.counted)


def accuracy(
    model: PreTrainedModel, cases: Sequence[Case], new_cache: NewCache, on_step: OnStep | None = None
) -> list[Accuracy]:
    """One row per task and length of prompt, in the order of their first case."""
    found: dict[tuple[str, int], list[list[bool]]] = {}
    for case in cases:
        found.setdefault((case.task, len(case.prompt)), []).append(answered(model, case, new_cache))
        if on_step:
            on_step()
    return [summarise(task, length, answers) for (task, length), answers in found.items()]


def summarise(task: str, context: int, answers: Sequence[Sequence[bool]]) -> Accuracy:
    """One row of results. The input says of each case which tokens are right."""
    exact = float(np.mean([all(answer) for answer in answers]))
    return Accuracy(task, context, len(answers), exact, float(np.mean([right for a in answers for right in a])))
