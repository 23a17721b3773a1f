"""K, V and queries of attention: random, or from a model that reads source code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from kvdrive.eval import library
from kvdrive.generation import checkpoints

SEED = 1
RUN = 256  # similar tokens per run, for data whose chosen tokens are neighbours
SCATTERED, IN_RUNS = "scattered", "in runs"  # where SparF's chosen tokens are
_LAST_QUERY = "last_query"


@dataclass(frozen=True)
class Shape:
    """The size of a decode step's attention."""

    layers: int = 8
    kv_heads: int = 4
    group: int = 4
    head_dim: int = 128
    tokens: int = 4096

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V of all layers in binary16."""
        return 4 * self.layers * self.kv_heads * self.tokens * self.head_dim


@dataclass(frozen=True)
class States:
    """binary16: K and V of each layer [kv_heads, tokens, d], the next token's queries [layers, kv_heads, group, d]."""

    k: Sequence[NDArray[np.float16]]
    v: Sequence[NDArray[np.float16]]
    q: NDArray[np.float16]


def made_up(shape: Shape, data: str) -> States:
    """Independent rows, or runs of similar rows. All layers have the same rows, at different places of the file."""
    rng, size = np.random.default_rng(SEED), (shape.kv_heads, shape.tokens, shape.head_dim)
    k, v = (rng.standard_normal(size, np.float32) for _ in range(2))
    if data == IN_RUNS:
        runs = rng.standard_normal((shape.kv_heads, -(-shape.tokens // RUN), shape.head_dim), np.float32)
        k = np.repeat(runs, RUN, axis=1)[:, : shape.tokens] + 0.3 * k
    q = np.random.default_rng(SEED + 1).standard_normal((shape.layers, shape.kv_heads, shape.group, shape.head_dim))
    half = np.float16
    return States([k.astype(half)] * shape.layers, [v.astype(half)] * shape.layers, q.astype(half))


def of_a_model(name: str, tokens: int | None = None) -> tuple[Shape, States]:
    """K and V of a model for `tokens` of source code, None: its context, and the queries of the last token."""
    checkpoint = checkpoints.load(name)
    text = "\n".join(module.text for module in library.held_out_modules())
    ids = torch.tensor([checkpoint.encode(text)[: tokens or checkpoint.context]])
    queries: dict[int, torch.Tensor] = {}

    def attend(module: torch.nn.Module, query: torch.Tensor, *rest: torch.Tensor, **options: object) -> object:
        queries[module.layer_idx] = query[0, :, -1]
        return sdpa_attention_forward(module, query, *rest, **options)

    AttentionInterface.register(_LAST_QUERY, attend)
    AttentionMaskInterface.register(_LAST_QUERY, sdpa_mask)
    checkpoint.model.set_attn_implementation(_LAST_QUERY)
    cache = DynamicCache()
    with torch.no_grad():
        checkpoint.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    of = checkpoint.shape
    shape = Shape(of.layers, of.kv_heads, of.query_heads // of.kv_heads, of.head_dim, ids.shape[1])
    halves = [[x[0].to(torch.float16).numpy() for x in (layer.keys, layer.values)] for layer in cache.layers]
    q = torch.stack([queries[layer] for layer in range(of.layers)]).to(torch.float16).numpy()
    return shape, States(
        [k for k, _ in halves],
        [v for _, v in halves],
        q.reshape(shape.layers, shape.kv_heads, shape.group, shape.head_dim),
    )
