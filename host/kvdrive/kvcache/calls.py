"""What a call of the model asks of the layers of a cache, and what a layer gives in place of tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers.cache_utils import CacheLayerMixin

LayersInMemory = Callable[[], dict[int, CacheLayerMixin]]  # makes the layers that stay in memory, by index


class AttachedLayer(CacheLayerMixin, ABC):  # type: ignore[misc]
    """A layer that computes its own attention. `update` takes new tokens and returns `KvHandle`s for K and V."""

    is_sliding = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Not needed: `update` does it."""

    def prefilled(self, call: LayerCall) -> None:
        """Called after the first call of a sequence, which attends on the host."""

    def earlier(self, handle: KvHandle) -> tuple[torch.Tensor, torch.Tensor] | None:
        """K and V [batch, heads, tokens, d] of the tokens before a call that attends on the host; None: `attend` does.

        Such calls are the later parts of a prompt that is computed in parts (`Part.in_prompt`).
        """
        return None

    @abstractmethod
    def attend(self, call: LayerCall) -> torch.Tensor:
        """Attention of a later call: [batch, q, heads, d]."""

    def get_max_length(self) -> int:
        """Always -1: the layer has no maximum length."""
        return -1


@dataclass(frozen=True)
class KvHandle:
    """What `update` returns in place of K and of V.

    `first_token`: tokens of the layer before this call. `keys`, `values`: this call's own, [batch, heads, tokens, d].
    """

    layer: AttachedLayer
    first_token: int
    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True)
class LayerCall:
    """What one call of the model asks of a layer: `query` [batch, heads, q, d].

    `mask` bool [batch, 1, q, tokens], None: every token sees all before it. `scaling` None: 1 / sqrt(d). `sinks`
    [heads]: each query head also attends to a token with this score and V = 0. `in_memory`: the same attention, without
    a mask, of a query to K and V [1, heads, tokens, d] in memory.
    """

    handle: KvHandle
    query: torch.Tensor
    mask: torch.Tensor | None
    scaling: float | None
    sinks: torch.Tensor | None = None
    in_memory: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] | None = None
