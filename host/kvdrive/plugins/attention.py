"""The attention function and the mask by which transformers reaches the drives. Both are registered by name."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.calls import KvHandle, LayerCall
from kvdrive.plugins.host_attention import attend_on_host, causal_mask
from kvdrive.plugins.probe import CHANGES_SCORES

NAME = "kvdrive"


def register() -> None:
    """From now on transformers knows the name."""
    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention_function(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: KvHandle | torch.Tensor,
    value: KvHandle | torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention function of transformers: query [batch, heads, q, d] -> [batch, q, heads, d].

    Tensors instead of a handle, from calls without a cache and from layers that stay in memory, are attended to on the
    host. `s_aux` [heads], the scores of attention sinks, is the only extra argument that the drive knows.
    Raises UnsupportedError for scores that the drive does not compute, RangeError, CommandError, TargetError.
    """
    if not isinstance(key, KvHandle):
        return attend_on_host(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
    if dropout:
        raise UnsupportedError("attention dropout does not exist in the drive: call model.eval()")
    extra = [name for name in CHANGES_SCORES if kwargs.get(name) is not None]
    if extra:
        raise UnsupportedError(f"{type(module).__name__} uses {', '.join(extra)}, which the drive does not compute")

    def in_memory(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend_on_host(module, q, k, v, None, scaling=scaling, **kwargs)[0]

    call = LayerCall(key, query, attention_mask, scaling, kwargs.get("s_aux"), in_memory)
    if key.first_token == 0:
        out = attend_on_host(module, query, key.keys, key.values, attention_mask, scaling=scaling, **kwargs)
        key.layer.prefilled(call)
        return out
    if (earlier := key.layer.earlier(key)) is not None:
        keys, values = (torch.cat(pair, 2) for pair in zip(earlier, (key.keys, key.values), strict=True))
        mask = causal_mask(attention_mask, query.shape[2], keys.shape[2], query.device)
        return attend_on_host(module, query, keys, values, mask, scaling=scaling, **kwargs)
    return key.layer.attend(call), None
