"""Inputs of the models that are results of InstInfer."""

from __future__ import annotations

from kvdrive.perf import hardware
from kvdrive.perf.hardware import INSTCSD_CHANNELS
from kvdrive.perf.shapes import OPT_13B
from kvdrive.study.inputs import Input
from kvdrive.study.instinfer import stated

_BATCH, _LARGE = 64, 256
_MEAN_TOKENS = 1536  # of 1024 to 2048, while InstInfer's answers grow


def _instcsd_kv(batch: int) -> float:
    return OPT_13B.kv_bytes(batch, _MEAN_TOKENS) / INSTCSD_CHANNELS.value


def _beside_kv(batch: int) -> float:
    """Seconds of a step beside access to K and V, which takes a share of it that the paper states."""
    share = (stated.DENSE_SHARE if batch == _BATCH else stated.DENSE_SHARE_LARGE).value / 100
    return _instcsd_kv(batch) * (1 - share) / share


def _slope() -> float:
    """Seconds that each sequence adds to that."""
    return (_beside_kv(_LARGE) - _beside_kv(_BATCH)) / (_LARGE - _BATCH)


def _deepspeed() -> float:
    gain, step = 1 + stated.DEEPSPEED_GAIN.value / 100, _instcsd_kv(_LARGE) / (stated.DENSE_SHARE_LARGE.value / 100)
    return OPT_13B.kv_bytes(16, _MEAN_TOKENS) / (16 * gain * step / _LARGE)


def _deepspeed_swap() -> float:
    in_memory = OPT_13B.kv_bytes(16, _MEAN_TOKENS) / DEEPSPEED_RATE.value
    return OPT_13B.kv_bytes(32, _MEAN_TOKENS) / (2 * stated.DEEPSPEED_FALL.value * in_memory)


FLEXGEN_RATE = Input(
    lambda: INSTCSD_CHANNELS.value * (1 - stated.KV_SAVED.value / 100),
    "B/s",
    "FlexGen's path from one SSD to the GPU: 11.2 GB/s in the drive take 88.1 % less time",
)
FLEXGEN_SECOND_SSD = Input(
    lambda: stated.SECOND_SSD.value,
    "times",
    "the rate of that path with more SSDs: it is the software's, and stays",
)
A6000_USE = Input(
    lambda: OPT_13B.active_weight_bytes / _slope() / hardware.A6000.flops.value,
    "of its FLOP",
    "growth of a step's other time from batch 64 to 256 (80.7 % and 93.6 % are K and V)",
)
INSTINFER_LAYER = Input(
    lambda: (_beside_kv(_BATCH) - _BATCH * _slope()) / OPT_13B.layers,
    "s",
    "the part of that time that does not grow, divided by the layers: what InstInfer's software takes for each",
)
DEEPSPEED_RATE = Input(
    _deepspeed,
    "B/s",
    "DeepSpeed's K and V from host memory to the GPU: 4.6 % slower at batch 16 than one drive at batch 256",
)
DEEPSPEED_SWAP = Input(
    _deepspeed_swap,
    "B/s",
    "the same when the kernel swaps: 32.6 times fewer tokens a second at batch 32",
)
PAGES_READ = Input(
    lambda: 1.5 * stated.PAGES_KEEP.value,
    "of K and V",
    "bytes of SparF 1/8 if pages keep half of the sparsity: a quarter of K, then a quarter of K and V",
)
