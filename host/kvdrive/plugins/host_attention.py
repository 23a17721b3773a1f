"""Attention in memory: the first call of a sequence, and layers that do not go to a drive."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad
from transformers.integrations.sdpa_attention import sdpa_attention_forward

_CHANNELS = 8  # added to each row for a sink; a multiple of 8 suits vector instructions


def attend_on_host(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Stock sdpa with sinks: query [batch, heads, q, d] -> [batch, q, heads, d].

    `s_aux` [heads]: each query head also attends to a token with this score and V = 0. `kwargs` go to sdpa.
    """
    if s_aux is None:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    head_dim, tokens = query.shape[-1], query.shape[2]
    scaling = head_dim**-0.5 if scaling is None else scaling
    # The sink is a first token whose K is 1 in a channel of its own, in which the query holds score / scaling.
    channel = (s_aux.to(query) / scaling).view(1, -1, 1, 1).expand(*query.shape[:3], 1)
    query = torch.cat([query, pad(channel, (0, _CHANNELS - 1))], -1)
    key, value = pad(key, (0, _CHANNELS, 1, 0)), pad(value, (0, _CHANNELS, 1, 0))
    key[:, :, 0, head_dim] = 1
    causal = attention_mask is None and tokens > 1
    if causal:
        query = pad(query, (0, 0, 1, 0))  # so that query token i still sees i + 1 keys
    elif attention_mask is not None:
        attention_mask = pad(attention_mask, (1, 0), value=True)
    out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    return out[:, 1 if causal else 0 :, :, :head_dim].contiguous(), None


def causal_mask(mask: torch.Tensor | None, new_tokens: int, tokens: int, device: torch.device) -> torch.Tensor:
    """`mask`, or bool [1, 1, new_tokens, tokens] where the last of `new_tokens` queries sees all `tokens` keys."""
    if mask is not None:
        return mask
    whole = torch.ones(new_tokens, tokens, dtype=torch.bool, device=device)
    return whole.tril(tokens - new_tokens)[None, None]
