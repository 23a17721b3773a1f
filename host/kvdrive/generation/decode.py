"""Generation one step at a time: a caller can show, stop or interleave sequences between steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from kvdrive.generation.sampling import GREEDY, Sampling, choose


@dataclass(frozen=True)
class Step:
    """What one step chose: tokens int64 [batch], from logits float32 [batch, vocabulary]."""

    tokens: torch.Tensor
    logits: torch.Tensor


def steps(
    model: PreTrainedModel,
    ids: torch.Tensor,
    cache: Cache,
    max_new_tokens: int,
    *,
    mask: torch.Tensor | None = None,
    sampling: Sampling = GREEDY,
    stop_ids: frozenset[int] = frozenset(),
    at_once: int = 0,
) -> Iterator[Step]:
    """Continue ids [batch, tokens] int64; the first step is the prefill of what `cache` does not hold yet.

    `cache` holds the first tokens of ids, fewer than all. `mask` [batch, tokens], 0 = padding on the left. A row that
    reached one of `stop_ids` repeats it; generation ends when all rows did, or when the iterator is closed. `at_once`:
    one call computes so many tokens of a prompt without padding, so that a prompt longer than the context fits; 0: all.
    Raises what the cache raises.
    """
    if mask is not None and bool(mask.all()):
        mask = None
    generator = torch.Generator().manual_seed(sampling.seed)
    stops = torch.tensor(sorted(stop_ids), dtype=torch.int64)
    finished = torch.zeros(ids.shape[0], dtype=torch.bool)
    chosen = ids[:, cache.get_seq_length() :]
    while at_once and mask is None and chosen.shape[1] > at_once:
        with torch.no_grad():
            model(chosen[:, :at_once].to(model.device), past_key_values=cache, use_cache=True, logits_to_keep=1)
        chosen = chosen[:, at_once:]
    for _ in range(max_new_tokens):
        position_ids = None if mask is None else (mask.cumsum(-1) - 1).clamp(min=0)[:, -chosen.shape[1] :]
        with torch.no_grad():
            logits = model(
                chosen.to(model.device),
                attention_mask=None if mask is None else mask.to(model.device),
                position_ids=None if position_ids is None else position_ids.to(model.device),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            logits = logits.float().cpu()
            tokens = torch.where(finished, chosen[:, -1], choose(logits, sampling, generator))
        finished = torch.isin(tokens, stops)
        yield Step(tokens, logits)
        if bool(finished.all()):
            return
        chosen = tokens[:, None]
        mask = None if mask is None else torch.cat([mask, mask.new_ones(len(tokens), 1)], dim=1)
