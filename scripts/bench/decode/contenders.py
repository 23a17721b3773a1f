"""The contenders of decode steps: one set of weights, five caches with the same random K and V."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache
from transformers.masking_utils import sdpa_mask

from bench.decode.random_models import SEED
from kvdrive.config.run import RunConfig
from kvdrive.generation.checkpoints import Shape
from kvdrive.plugins.transformers import attach
from kvdrive.targets.group import DriveGroup
from kvdrive.targets.opening import open_drives
from kvdrive.targets.options import DriveOptions

PACKED = "packed"


class PreallocatedLayer(CacheLayerMixin):
    """K and V of a layer in buffers of their final size, the fastest cache in memory."""

    is_sliding = False

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.tokens = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        batch, heads, _, head_dim = key_states.shape
        self.keys, self.values = (key_states.new_empty(batch, heads, self.capacity, head_dim) for _ in range(2))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        first, self.tokens = self.tokens, self.tokens + key_states.shape[2]
        self.keys[:, :, first : self.tokens] = key_states
        self.values[:, :, first : self.tokens] = value_states
        return self.keys[:, :, : self.tokens], self.values[:, :, : self.tokens]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.tokens + query_length, 0

    def get_seq_length(self) -> int:
        return self.tokens

    def get_max_length(self) -> int:
        return -1


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    """A decode step of SDPA that reads K and V once. The query heads of a group become queries of one KV head."""
    batch, heads, new_tokens, head_dim = query.shape
    if new_tokens != 1 or attention_mask is not None:
        raise ValueError("packed attention serves single tokens without a mask")
    q = query.reshape(batch, key.shape[1], -1, head_dim)
    out = torch.nn.functional.scaled_dot_product_attention(q, key, value, scale=scaling)
    return out.reshape(batch, 1, heads, head_dim), None


@dataclass
class Contender:
    """A model with its cache, and its `drives` if it has any."""

    name: str
    model: PreTrainedModel
    cache: Cache
    drives: DriveGroup | None = None

    def step(self, token: torch.Tensor) -> torch.Tensor:
        """Decode one token; its logits."""
        with torch.no_grad():
            return self.model(token, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits[0, -1].float()


def sibling(model: PreTrainedModel) -> PreTrainedModel:
    """A second model with the same weights, so that each model can have a different attention."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in model.parameters()})


def states(shape: Shape, context: int, dtype: torch.dtype) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """K and V of each layer, [1, heads, context, d]; the same in every call."""
    generator = torch.Generator().manual_seed(SEED)
    size = (1, shape.kv_heads, context, shape.head_dim)
    for _ in range(shape.layers):
        k, v = (torch.randn(size, generator=generator).to(torch.float16).to(dtype) for _ in range(2))
        yield k, v


@contextmanager
def contenders(
    model: PreTrainedModel, shape: Shape, context: int, rounds: int, threads: int, folder: Path
) -> Iterator[list[Contender]]:
    """All contenders of a round with filled caches; stock transformers comes first."""
    AttentionInterface.register(PACKED, packed_attention)
    AttentionMaskInterface.register(PACKED, sdpa_mask)
    in_memory = [PreallocatedLayer(context + rounds + 1) for _ in range(shape.layers)]
    packed = sibling(model)
    packed.set_attn_implementation(PACKED)
    found = [
        Contender("transformers sdpa", model, DynamicCache()),
        Contender("packed sdpa", packed, Cache(layers=in_memory)),
    ]
    capacity = 4 * (context + rounds) * shape.bytes_per_token
    with ExitStack() as opened:
        for name, attention, target in (
            ("kvdrive emulator", RunConfig(), "emulator"),
            ("kvdrive emulator, SparF 1/8", RunConfig.of(attention="sparf", ratio=Fraction(1, 8)), "emulator"),
            ("kvdrive cpu target", RunConfig(), "cpu"),
        ):
            place = folder / name.replace(" ", "-").replace("/", "-").replace(",", "")
            options = DriveOptions("fast", "", threads, max(1 << 30, capacity), place, target=target)
            drives = opened.enter_context(open_drives(options))
            own = sibling(model)
            cache = opened.enter_context(attach(own, drives, config=attention)).cache()
            found.append(Contender(name, own, cache, drives))
        for contender in found:
            for layer, (k, v) in enumerate(states(shape, context, model.dtype)):
                contender.cache.update(k, v, layer)
        yield found
