"""The machine of a replay: rates, sizes and prices, by default those of AttentionStore's paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvdrive.perf.hardware import A100_80, A100_FLOPS, TRANSFORMERS_LAYER
from kvdrive.perf.shapes import FALCON_40B, LLAMA_13B, LLAMA_65B, LLAMA_70B, ModelShape
from kvdrive.study.attention_store.inputs import A100_USE

GB = 10**9


SLOTS = 24  # sequences that decode at once


@dataclass(frozen=True)
class Model:
    """`bytes_per_token` of K and V; `prefill`: seconds per token, and `attention`: for each token that it attends to;
    `decode`: seconds of a step of all sequences.

    `window`: tokens of the model's context, 0: without a bound. `gpus`: that compute it.
    """

    bytes_per_token: int
    prefill: float
    decode: float = 0.03
    window: int = 0
    gpus: int = 4
    attention: float = 0.0

    def compute(self, new: int, history: int = 0) -> float:
        """Seconds to compute `new` tokens of a prompt after `history` that are there."""
        return new * self.prefill + (new * history + new * (new + 1) / 2) * self.attention


def _model(shape: ModelShape, gpus: int, window: int) -> Model:
    """A prefill uses the share of the GPUs' FLOP that the published one of LLaMA-65B does. A decode step reads the
    weights and the K and V of all slots, each half a window long, and lasts no less than transformers, on which the
    paper's system stands, takes to start the kernels of its layers."""
    rate = gpus * A100_FLOPS.value * A100_USE.value
    pair = 4 * shape.hidden * shape.layers  # FLOP of a token and one that it attends to
    reads = (shape.weight_bytes + shape.kv_bytes(SLOTS, window // 2)) / (gpus * A100_80.memory_rate.value)
    step = max(reads, shape.layers * TRANSFORMERS_LAYER.value)
    return Model(shape.kv_bytes_per_token, (shape.prefill_flop(1) - pair) / rate, step, window, gpus, pair / rate)


_SIZES = {  # LLaMA-1's and Falcon's contexts have 2K tokens, those of LLaMA-2 4K
    "llama-13b": (LLAMA_13B, 2, 4096),
    "llama-65b": (LLAMA_65B, 4, 2048),
    "llama-70b": (LLAMA_70B, 4, 4096),
    "falcon-40b": (FALCON_40B, 4, 2048),
}


class _Models(Mapping[str, Model]):
    """The paper's models by name, each computed when it is asked for: a stated number goes in."""

    def __getitem__(self, name: str) -> Model:
        return _model(*_SIZES[name])

    def __iter__(self) -> Iterator[str]:
        return iter(_SIZES)

    def __len__(self) -> int:
        return len(_SIZES)


MODELS = _Models()


@dataclass(frozen=True)
class Machine:
    """`memory`, `disk`: bytes for kept sessions. `pcie`, `disk_rate`: bytes a second. `slots`: sequences at once.

    `overlap`: K and V load while the layers and the request before them compute, into a read buffer. `in_place`:
    attention is in the drive, and nothing is loaded. `prefetch`: waiting requests' sessions go from disk to memory
    before they run. `reserved`: each session takes the room of a whole context, as batches that are padded to their
    longest sequence leave it; models with a window only. Prices in USD an hour.
    """

    memory: int = 128 * GB
    disk: int = 10_000 * GB
    pcie: float = 26e9
    disk_rate: float = 5e9
    slots: int = SLOTS
    overlap: bool = True
    in_place: bool = False
    prefetch: bool = True
    reserved: bool = False
    gpu_price: float = 5.0
    memory_price: float = 0.0088  # of a GB
    disk_price: float = 0.000082  # of a GB
