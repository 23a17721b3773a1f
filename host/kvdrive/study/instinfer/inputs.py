"""Inputs of the models that are results of InstInfer.

FlexGen's rate, what its software takes for a layer, and what a drive's processor takes for a command are software
costs; DeepSpeed's two rates belong to another system. InstInfer is built on FlexGen (section V-A), so that FlexGen's
cost of a layer is InstInfer's, too.
"""

from __future__ import annotations

from kvdrive.perf import hardware
from kvdrive.perf.hardware import INSTCSD_CHANNELS
from kvdrive.perf.shapes import OPT_13B
from kvdrive.study.inputs import Input
from kvdrive.study.instinfer import stated

_BATCH, _LARGE = 64, 256
_MEAN_TOKENS = 1536  # of 1024 to 2048, while InstInfer's answers grow


def _kv(batch: int) -> float:
    return OPT_13B.kv_bytes(batch, _MEAN_TOKENS)


def _beside_kv(batch: int) -> float:
    """Seconds of a step beside access to K and V, which takes a share of it that the paper states."""
    share = (stated.DENSE_SHARE if batch == _BATCH else stated.DENSE_SHARE_LARGE).value / 100
    return _kv(batch) / INSTCSD_CHANNELS.value * (1 - share) / share


def _slope() -> float:
    """Seconds that each sequence adds to that."""
    return (_beside_kv(_LARGE) - _beside_kv(_BATCH)) / (_LARGE - _BATCH)


def _flexgen_layer() -> float:
    share = stated.FLEXGEN_SHARE.value / 100
    return _kv(_BATCH) / FLEXGEN_RATE.value * (1 - share) / share / OPT_13B.layers


def _command() -> float:
    rest = _beside_kv(_BATCH) - _BATCH * _slope() - FLEXGEN_LAYER.value * OPT_13B.layers
    return rest / OPT_13B.layers / OPT_13B.kv_heads


def _deepspeed() -> float:
    gain, step = 1 + stated.DEEPSPEED_GAIN.value / 100, _kv(_LARGE) / INSTCSD_CHANNELS.value
    step /= stated.DENSE_SHARE_LARGE.value / 100
    return _kv(16) / (16 * gain * step / _LARGE)


def _deepspeed_swap() -> float:
    in_memory = _kv(16) / DEEPSPEED_RATE.value
    return _kv(32) / (2 * stated.DEEPSPEED_FALL.value * in_memory)


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
FLEXGEN_LAYER = Input(
    _flexgen_layer,
    "s",
    "what FlexGen's software takes for a layer whose K and V are not in the GPU: the rest of a step, of which 98.94 % "
    "are access to K and V",
)
A6000_USE = Input(
    lambda: OPT_13B.active_weight_bytes / _slope() / hardware.A6000.flops.value,
    "of its FLOP",
    "growth of a step's other time from batch 64 to 256 (80.7 % and 93.6 % are K and V)",
)
INSTINFER_COMMAND = Input(
    _command,
    "s",
    "the rest of InstInfer's other time at batch 64, beside GPU and FlexGen's layers, for each head of a layer: the "
    "processor of the drive that holds the head spends it",
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
