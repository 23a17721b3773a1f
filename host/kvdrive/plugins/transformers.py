"""transformers models with their decode attention in a drive.

    with attach(model, target) as drive:
        model.generate(ids, past_key_values=drive.cache())

Only public extension points are used: an attention function and its mask, both by name, and a cache.
The first call of a sequence attends to its own K and V on the host, as stock sdpa does; every later token attends
in the drive, over K and V rounded to binary16.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from kvdrive.errors import UnsupportedError
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.cache import DriveCache, KvHandle
from kvdrive.kvcache.half import to_half
from kvdrive.plugins.support import check_model, decoder_config
from kvdrive.policies.base import Policy
from kvdrive.policies.exact import Exact
from kvdrive.targets.base import Target

NAME = "kvdrive"
_CHANGES_SCORES = ("softcap", "s_aux", "position_bias", "sliding_window")


class Attachment:
    """A model that is attached to a drive."""

    def __init__(self, model: PreTrainedModel, target: Target, policy: Policy) -> None:
        self.target = target
        self._policy = policy
        self._layers = decoder_config(model).num_hidden_layers
        self._caches: list[DriveCache] = []

    def cache(self) -> DriveCache:
        """A new, empty cache for one batch: pass it as `past_key_values`. Detaching the model empties it."""
        cache = DriveCache(self.target, self._layers, self._policy)
        self._caches.append(cache)
        return cache

    def forget_caches(self) -> None:
        """Trim every session of this attachment from the drive."""
        for cache in self._caches:
            cache.reset()


@contextmanager
def attach(model: PreTrainedModel, target: Target, attention: Policy | None = None) -> Iterator[Attachment]:
    """Send the decode attention of `model` to `target`; the model's own attention comes back at the end.

    `attention` is exact by default. Raises UnsupportedError for models that the drive cannot serve exactly and for
    policies that it cannot run.
    """
    check_model(model)
    if attention and not attention.in_drive:
        raise UnsupportedError(f"no drive can run {attention.name}: use kvdrive.policies.host.attach_host")
    AttentionInterface.register(NAME, drive_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    stock = model.config._attn_implementation
    attachment = Attachment(model, target, attention or Exact())
    model.set_attn_implementation(NAME)
    try:
        yield attachment
    finally:
        model.set_attn_implementation(stock)
        attachment.forget_caches()


def drive_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: KvHandle,
    value: KvHandle,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention function of transformers: query [batch, heads, q, d] -> [batch, q, heads, d].

    Raises UnsupportedError for calls without a DriveCache and for scores that the drive does not compute.
    """
    if not isinstance(key, KvHandle):
        raise UnsupportedError("no drive cache in this call: pass past_key_values=drive.cache() and use_cache=True")
    if dropout:
        raise UnsupportedError("attention dropout does not exist in the drive: call model.eval()")
    extra = [name for name in _CHANGES_SCORES if kwargs.get(name) is not None]
    if extra:
        raise UnsupportedError(f"{type(module).__name__} uses {', '.join(extra)}, which the drive does not compute")
    if key.first_token == 0:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key.states, value.states, attention_mask, scaling=scaling, **kwargs
        )
    return _decode(query, key, attention_mask, scaling), None


def _decode(
    query: torch.Tensor, handle: KvHandle, attention_mask: torch.Tensor | None, scaling: float | None
) -> torch.Tensor:
    batch, heads, new_tokens, head_dim = query.shape
    kv_heads = handle.states.shape[1]
    scale = scale_bits(scaling, head_dim)
    q = to_half(query, f"Q of layer {handle.layer}").reshape(batch, kv_heads, heads // kv_heads, new_tokens, head_dim)
    out = np.empty((batch, new_tokens, heads, head_dim), np.float16)
    for row, session in enumerate(handle.sessions):
        for i in range(new_tokens):
            tokens = handle.first_token + i + 1
            valid = _valid(attention_mask, row, i, tokens)
            how = handle.policy.parameters(tokens, head_dim, valid)
            result = session.attend(handle.layer, np.ascontiguousarray(q[row, :, :, i]), tokens, scale, how)
            out[row, i] = result.out.reshape(heads, head_dim)
    return torch.from_numpy(out).to(device=query.device, dtype=query.dtype)


def _valid(mask: torch.Tensor | None, row: int, i: int, tokens: int) -> NDArray[np.bool_] | None:
    """Row `i` of the mask [batch, 1, q, tokens] as the drive's validity bitmap; None where every token counts."""
    if mask is None:
        return None
    if mask.dtype != torch.bool or mask.shape[1] != 1:
        raise UnsupportedError("only boolean masks that are the same for all heads can go to the drive")
    allowed = mask[row, 0, i].cpu().numpy()
    if allowed[tokens:].any():
        raise UnsupportedError("the mask lets a token attend to later ones: the drive serves causal models only")
    return None if allowed[:tokens].all() else allowed[:tokens]
