"""transformers models under a policy that no drive can run: K and V that the policy keeps stay in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.half import to_half
from kvdrive.plugins.probe import probe
from kvdrive.plugins.support import check_model, decoder_config, layers_in_memory
from kvdrive.policies.h2o import H2O
from kvdrive.policies.kept_tokens import KeptTokens

NAME = "kvdrive_host"


@dataclass(frozen=True)
class HostHandle:
    """What `update` returns in place of K and of V: this call's states [batch, heads, tokens, d] and their layer."""

    layer: HostLayer
    first_token: int
    states: torch.Tensor


class HostLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer: the kept tokens of each row, there after the first call."""

    is_sliding = False
    is_croppable = False

    def __init__(self, policy: H2O) -> None:
        super().__init__()
        self.policy = policy
        self.rows: list[KeptTokens] = []
        self.tokens = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to prepare."""
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[HostHandle, HostHandle]:
        """Count the tokens; the attention function stores them."""
        first, self.tokens = self.tokens, self.tokens + key_states.shape[2]
        self.is_initialized = True
        return HostHandle(self, first, key_states), HostHandle(self, first, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a mask for `query_length` new tokens covers."""
        return self.tokens + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens of the sequence, dropped ones included."""
        return self.tokens

    def get_max_length(self) -> int:
        """-1: no maximum of its own."""
        return -1


class HostCache(Cache):  # type: ignore[misc]
    """The cache of one batch. What was dropped cannot come back: no crop and no beams."""

    def __init__(self, policy: H2O, layers: int) -> None:
        super().__init__(layers=[HostLayer(policy) for _ in range(layers)])

    @property
    def bytes_read(self) -> int:
        """Bytes of K and V that decode steps read so far."""
        return sum(row.bytes_read for layer in self.layers for row in layer.rows)

    def crop(self, tokens_to_remove: int) -> None:
        """Not possible unless nothing is to be removed."""
        if tokens_to_remove:
            raise UnsupportedError("h2o cannot take tokens back: it has dropped others for them")

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Not supported."""
        raise UnsupportedError("h2o serves no beam search: use num_beams=1")


class HostAttachment:
    """A model under a host policy."""

    def __init__(self, model: PreTrainedModel, policy: H2O) -> None:
        self._policy = policy
        self._layers = decoder_config(model).num_hidden_layers

    def cache(self) -> HostCache:
        """A new, empty cache for one batch: pass it as `past_key_values`."""
        return HostCache(self._policy, self._layers)


@contextmanager
def attach_host(model: PreTrainedModel, policy: H2O) -> Iterator[HostAttachment]:
    """Run the attention of `model` under `policy`; its own attention comes back at the end.

    Raises UnsupportedError for models that the kernels cannot serve exactly, or not in every layer.
    """
    check_model(model)
    if layers_in_memory(model) or probe(model).sinks:
        raise UnsupportedError(f"{policy.name} serves models whose layers all attend to every token, without sinks")
    AttentionInterface.register(NAME, host_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    stock = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield HostAttachment(model, policy)
    finally:
        model.set_attn_implementation(stock)


def host_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: HostHandle,
    value: HostHandle,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention function of transformers: query [batch, heads, q, d] -> [batch, q, heads, d].

    The first call attends exactly and chooses what stays. Raises UnsupportedError.
    """
    if not isinstance(key, HostHandle):
        raise UnsupportedError("no cache of this policy in the call: pass past_key_values=attached.cache()")
    layer, (batch, heads, new_tokens, head_dim) = key.layer, query.shape
    kv_heads = key.states.shape[1]
    scale = head_dim**-0.5 if scaling is None else scaling
    grouped = query.detach().reshape(batch, kv_heads, heads // kv_heads, new_tokens, head_dim)
    k, v = to_half(key.states, "K"), to_half(value.states, "V")
    if key.first_token == 0:
        for row in range(batch):
            seen = _unpadded(attention_mask, row, new_tokens)
            kept = KeptTokens(grouped[row][:, :, seen], k[row][:, seen], v[row][:, seen], layer.policy.ratio, scale)
            layer.rows.append(kept)
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key.states, value.states, attention_mask, scaling=scaling, **kwargs
        )
    q = to_half(grouped, "Q")
    out = np.empty((batch, new_tokens, heads, head_dim), np.float16)
    for row, kept in enumerate(layer.rows):
        for i in range(new_tokens):
            result = kept.attend(np.ascontiguousarray(q[row, :, :, i]), k[row, :, i], v[row, :, i])
            out[row, i] = result.reshape(heads, head_dim)
    return torch.from_numpy(out).to(query.dtype), None


def _unpadded(mask: torch.Tensor | None, row: int, tokens: int) -> torch.Tensor:
    """Indices of the tokens that the prompt's last one may attend to."""
    if mask is None:
        return torch.arange(tokens)
    return torch.nonzero(mask[row, 0, -1]).flatten()
