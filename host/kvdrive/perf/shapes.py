"""Sizes of the models that the five papers measure; bytes of K and V, bytes of weights and FLOP follow from them."""

from __future__ import annotations

from dataclasses import dataclass

HALF_BYTES = 2
LARGE = 200e9  # bytes of weights that the papers keep on storage instead of host memory


@dataclass(frozen=True)
class ModelShape:
    """A decoder. `ffn`: inner width of a feed-forward block or of one expert; `gated`: it has three matrices, not two.

    `experts` per layer, of which a token uses `active`.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    gated: bool = False
    experts: int = 1
    active: int = 1
    vocabulary: int = 50272

    @property
    def head_dim(self) -> int:
        """Elements of a row of K."""
        return self.hidden // self.heads

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.heads // self.kv_heads

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V of one token in all layers, binary16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * HALF_BYTES

    @property
    def x_bytes_per_token(self) -> int:
        """The inputs of one token's layers (X-cache), binary16."""
        return self.layers * self.hidden * HALF_BYTES

    @property
    def attention_weights(self) -> int:
        """Elements of the projections to Q, K, V and the output, all layers."""
        return self.layers * self.hidden * (2 * self.hidden + 2 * self.kv_heads * self.head_dim)

    @property
    def ffn_weights(self) -> int:
        """Elements of all feed-forward matrices, all layers and experts."""
        return self.layers * self.experts * (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def weight_bytes(self) -> int:
        """All matrices and the embedding, binary16."""
        return HALF_BYTES * (self.attention_weights + self.ffn_weights + self.vocabulary * self.hidden)

    @property
    def active_weight_bytes(self) -> int:
        """Bytes of the weights that one token uses."""
        return self.weight_bytes - HALF_BYTES * self.ffn_weights * (self.experts - self.active) // self.experts

    def step_weights(self, batch: int) -> float:
        """Elements of the matrices that a step of `batch` tokens uses: of experts, those that some token chooses."""
        return self.attention_weights + self.ffn_weights * (1 - (1 - self.active / self.experts) ** batch)

    def kv_bytes(self, batch: int, tokens: int) -> int:
        """K and V of `batch` sequences of `tokens` tokens."""
        return self.kv_bytes_per_token * batch * tokens

    def prefill_flop(self, new: int, history: int = 0) -> float:
        """FLOP of `new` tokens after `history` tokens: 2 for each active weight, causal attention."""
        matrices = self.active_weight_bytes / HALF_BYTES - self.vocabulary * self.hidden
        attended = new * history + new * (new + 1) / 2
        return 2 * matrices * new + 4 * attended * self.hidden * self.layers


def _llama(name: str, layers: int, hidden: int, ffn: int, heads: int, kv_heads: int) -> ModelShape:
    return ModelShape(name, layers, hidden, ffn, heads, kv_heads, gated=True, vocabulary=32000)


def _opt(name: str, layers: int, hidden: int, heads: int) -> ModelShape:
    return ModelShape(name, layers, hidden, 4 * hidden, heads, heads)


OPT_6_7B = _opt("opt-6.7b", 32, 4096, 32)
OPT_13B = _opt("opt-13b", 40, 5120, 40)
OPT_30B = _opt("opt-30b", 48, 7168, 64)
OPT_66B = _opt("opt-66b", 64, 9216, 72)
OPT_175B = _opt("opt-175b", 96, 12288, 96)
LLAMA_13B = _llama("llama-13b", 40, 5120, 13824, 40, 40)
LLAMA_65B = _llama("llama-65b", 80, 8192, 22016, 64, 64)
LLAMA_70B = _llama("llama-70b", 80, 8192, 28672, 64, 8)
FALCON_40B = ModelShape("falcon-40b", 60, 8192, 32768, 128, 8, vocabulary=65024)
MISTRAL_7B = _llama("mistral-7b", 32, 4096, 14336, 32, 8)
QWEN2_5_32B = ModelShape("qwen2.5-32b", 64, 5120, 27648, 40, 8, gated=True, vocabulary=152064)
MIXTRAL_8X7B = ModelShape("mixtral-8x7b", 32, 4096, 14336, 32, 8, gated=True, experts=8, active=2, vocabulary=32000)
GLAM_143B = ModelShape("glam-143b", 32, 4096, 16384, 32, 32, experts=64, active=2, vocabulary=256000)

SHAPES = {
    shape.name: shape
    for shape in (
        OPT_6_7B,
        OPT_13B,
        OPT_30B,
        OPT_66B,
        OPT_175B,
        LLAMA_13B,
        LLAMA_65B,
        LLAMA_70B,
        FALCON_40B,
        MISTRAL_7B,
        QWEN2_5_32B,
        MIXTRAL_8X7B,
        GLAM_143B,
    )
}
