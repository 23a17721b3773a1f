"""Teacher forcing: how a model rates given tokens after a context, all of them computed as decode steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from kvdrive.eval.tasks import Tokens
from kvdrive.kvcache.hf_cache import HfCache


@dataclass(frozen=True)
class Scores:
    """For n tokens: `nats` float64 [n], negative log likelihoods; `first` bool [n], the model's first choice.

    `log_shares` float64 [n, vocabulary]: log probabilities of all tokens, in nats.
    """

    nats: NDArray[np.float64]
    first: NDArray[np.bool_]
    log_shares: torch.Tensor

    @classmethod
    def of(cls, logits: torch.Tensor, target: Tokens) -> Scores:
        """Scores of `target` [n] from a model's logits [n, vocabulary]."""
        log_shares, wanted = logits.double().cpu().log_softmax(-1), torch.from_numpy(target)
        nats = -log_shares.gather(1, wanted[:, None])[:, 0]
        return cls(nats.numpy(), (log_shares.argmax(-1) == wanted).numpy(), log_shares)

    def divergence(self, exact: Scores) -> NDArray[np.float64]:
        """KL divergence of these distributions from those of `exact` on the same tokens, nats [n]."""
        found: NDArray[np.float64] = (exact.log_shares.exp() * (exact.log_shares - self.log_shares)).sum(-1).numpy()
        return found

    def agrees(self, exact: Scores) -> NDArray[np.bool_]:
        """True where the most probable token is that of `exact`, bool [n]."""
        same: NDArray[np.bool_] = (self.log_shares.argmax(-1) == exact.log_shares.argmax(-1)).numpy()
        return same


def prefill(model: PreTrainedModel, context: Tokens, cache: Any) -> None:
    """Put `context` [c] into the empty `cache`, all but its last token: that one is the first decode step."""
    if len(context) < 2:
        raise ValueError("a context has two tokens or more")
    with torch.no_grad():
        model(
            torch.from_numpy(context[None, :-1]).to(model.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )


def score(model: PreTrainedModel, last: int, target: Tokens, cache: Any) -> Scores:
    """Rate `target` [n] after a prefilled `cache` and the context's `last` token; the cache grows by n tokens."""
    if isinstance(cache, HfCache):
        cache.batch.part.shared.asks_together = False  # so that the bytes read are those of single decode steps
    given = torch.from_numpy(np.concatenate([[last], target[:-1]])).to(model.device)
    with torch.no_grad():
        logits = model(given[None], past_key_values=cache, use_cache=True).logits[0]
    return Scores.of(logits, target)


def rate(model: PreTrainedModel, context: Tokens, target: Tokens, cache: Any) -> Scores:
    """Rate `target` [n] after `context` [c >= 1] with the empty `cache`.

    A context of a single token has no prefill: its step is exact attention to itself, on the host.
    """
    if len(context) > 1:
        prefill(model, context, cache)
        return score(model, int(context[-1]), target, cache)
    first = score(model, int(context[0]), target[:1], cache)
    if len(target) == 1:
        return first
    rest = score(model, int(target[0]), target[1:], cache)
    return Scores(
        np.concatenate([first.nats, rest.nats]),
        np.concatenate([first.first, rest.first]),
        torch.cat([first.log_shares, rest.log_shares]),
    )
