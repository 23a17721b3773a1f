"""Inputs of the models that are results of the papers, each with the claim that it comes from. Nothing else is fitted.

A claim that an input comes from says nothing about the model. All other claims are predictions.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvdrive.perf import hardware, reuse
from kvdrive.perf.hardware import INSTCSD_CHANNELS
from kvdrive.perf.shapes import LLAMA_65B, OPT_13B


@dataclass(frozen=True)
class Input:
    """`value` in `unit`, from `claim`; `says` how it follows."""

    value: float
    unit: str
    claim: str
    says: str


_BATCH, _LARGE = 64, 256
_MEAN_TOKENS = 1536  # of 1024 to 2048, while InstInfer's answers grow


def _instcsd_kv(batch: int) -> float:
    return OPT_13B.kv_bytes(batch, _MEAN_TOKENS) / INSTCSD_CHANNELS.value


def _beside_kv(batch: int, share: float) -> float:
    """Seconds of a step beside access to K and V, which takes `share` of it."""
    return _instcsd_kv(batch) * (1 - share) / share


LESS_THAN_FLEXGEN = 0.881
FLEXGEN_RATE = Input(
    INSTCSD_CHANNELS.value * (1 - LESS_THAN_FLEXGEN),
    "B/s",
    "INST-16",
    "FlexGen's path from one SSD to the GPU: 11.2 GB/s in the drive take 88.1 % less time",
)
DENSE_SHARE, DENSE_SHARE_LARGE = 0.807, 0.936  # K and V in a step of one drive, batch 64 and 256
_SLOPE = (_beside_kv(_LARGE, DENSE_SHARE_LARGE) - _beside_kv(_BATCH, DENSE_SHARE)) / (_LARGE - _BATCH)
A6000_USE = Input(
    2 * OPT_13B.active_weight_bytes / 2 / _SLOPE / hardware.A6000.flops.value,
    "of its FLOP",
    "INST-07, INST-09",
    "growth of a step's other time from batch 64 to 256 (80.7 % and 93.6 % are K and V)",
)
INSTINFER_LAYER = Input(
    (_beside_kv(_BATCH, DENSE_SHARE) - _BATCH * _SLOPE) / OPT_13B.layers,
    "s",
    "INST-07, INST-09",
    "the part of that time that does not grow, divided by the layers: what InstInfer's software takes for each",
)
DEEPSPEED_GAIN = 1.046
DEEPSPEED_RATE = Input(
    OPT_13B.kv_bytes(16, _MEAN_TOKENS) / (16 * DEEPSPEED_GAIN * (_instcsd_kv(_LARGE) / DENSE_SHARE_LARGE) / _LARGE),
    "B/s",
    "INST-08",
    "DeepSpeed's K and V from host memory to the GPU: 4.6 % slower at batch 16 than one drive at batch 256",
)
DEEPSPEED_FALL = 32.6
DEEPSPEED_SWAP = Input(
    OPT_13B.kv_bytes(32, _MEAN_TOKENS)
    / (2 * DEEPSPEED_FALL * OPT_13B.kv_bytes(16, _MEAN_TOKENS) / DEEPSPEED_RATE.value),
    "B/s",
    "INST-04",
    "the same when the kernel swaps: 32.6 times fewer tokens a second at batch 32",
)
FLEXGEN_GAIN = 3.39
CPU_ATTENTION = Input(
    1 / (FLEXGEN_GAIN / (16 * hardware.SMARTSSD_P2P.value) - 1 / (4 * hardware.PM9A3.read.value)),
    "B/s",
    "HIL-24",
    "K and V that FlexGen's attention on the CPU takes: with 4 SSDs it lasts 3.39 times as long as 16 drives of 3 GB/s",
)
A100_USE = Input(
    reuse.efficiency(LLAMA_65B, 2048, 0.360, 4),
    "of its FLOP",
    "AS-05",
    "2K tokens of LLaMA-65B in 360 ms on four A100; used for every matrix of many rows on A100 and H100",
)
FLASH_ROWS = Input(1.25e9, "B/s", "LIF-03", "reads of single rows on an M1 Max, table 2")
FLASH_BUNDLES = Input(2.25e9, "B/s", "LIF-05", "reads of bundled rows and columns, table 2")
FLASH_NEW = Input(0.024, "of a layer's neurons", "LIF-04", "new neurons of a token with a window of 4 tokens")
ENDURANCE = Input(1.47, "times", "HIL-31", "requests in the drives' life, for the number of requests in HIL-33")
INPUTS = {
    "FLEXGEN_RATE": FLEXGEN_RATE,
    "A6000_USE": A6000_USE,
    "INSTINFER_LAYER": INSTINFER_LAYER,
    "DEEPSPEED_RATE": DEEPSPEED_RATE,
    "DEEPSPEED_SWAP": DEEPSPEED_SWAP,
    "CPU_ATTENTION": CPU_ATTENTION,
    "A100_USE": A100_USE,
    "FLASH_ROWS": FLASH_ROWS,
    "FLASH_BUNDLES": FLASH_BUNDLES,
    "FLASH_NEW": FLASH_NEW,
    "ENDURANCE": ENDURANCE,
}
