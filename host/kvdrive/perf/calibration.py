"""Inputs of the models that are results of the papers.

A claim whose number goes into its own prediction says nothing about the model: the ledger gives it the verdict "input".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvdrive.perf import hardware, reuse, stated
from kvdrive.perf.hardware import INSTCSD_CHANNELS
from kvdrive.perf.shapes import LLAMA_65B, OPT_13B


@dataclass(frozen=True)
class Input:
    """A number in `unit`, computed when it is read; `says` how it follows."""

    compute: Callable[[], float]
    unit: str
    says: str

    @property
    def value(self) -> float:
        """The number. The stated numbers that it follows from are read."""
        return self.compute()

    @property
    def claims(self) -> tuple[str, ...]:
        """The claims whose numbers it follows from."""
        with stated.watched() as claims:
            self.compute()
        return tuple(sorted(claims))

    def times(self, factor: float) -> Input:
        """The same, so many times as large."""
        return Input(lambda: factor * self.value, self.unit, self.says)


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


def _cpu_attention() -> float:
    drives = stated.FLEXGEN_GAIN.value / (16 * hardware.SMARTSSD_P2P.value)
    return 1 / (drives - 1 / (4 * hardware.PM9A3.read.value))


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
CPU_ATTENTION = Input(
    _cpu_attention,
    "B/s",
    "K and V that FlexGen's attention on the CPU takes: with 4 SSDs it lasts 3.39 times as long as 16 drives of 3 GB/s",
)
A100_USE = Input(
    lambda: reuse.efficiency(LLAMA_65B, 2048, stated.PREFILL_SECONDS.value, 4),
    "of its FLOP",
    "2K tokens of LLaMA-65B in 360 ms on four A100; used for every matrix of many rows on A100 and H100",
)
FLASH_SEQUENTIAL = Input(lambda: stated.FLASH_SEQUENTIAL.value, "B/s", "reads of whole matrices on an M1 Max, table 2")
FLASH_ROWS = Input(lambda: stated.FLASH_ROWS.value, "B/s", "reads of single rows on an M1 Max, table 2")
FLASH_BUNDLES = Input(lambda: stated.FLASH_BUNDLES.value, "B/s", "reads of bundled rows and columns, table 2")
FLASH_NEW = Input(
    lambda: stated.FLASH_NEW.value / 100,
    "of a layer's neurons",
    "new neurons of a token with a window of 4 tokens",
)
INPUTS = {
    "FLEXGEN_RATE": FLEXGEN_RATE,
    "FLEXGEN_SECOND_SSD": FLEXGEN_SECOND_SSD,
    "A6000_USE": A6000_USE,
    "INSTINFER_LAYER": INSTINFER_LAYER,
    "DEEPSPEED_RATE": DEEPSPEED_RATE,
    "DEEPSPEED_SWAP": DEEPSPEED_SWAP,
    "PAGES_READ": PAGES_READ,
    "CPU_ATTENTION": CPU_ATTENTION,
    "A100_USE": A100_USE,
    "FLASH_SEQUENTIAL": FLASH_SEQUENTIAL,
    "FLASH_ROWS": FLASH_ROWS,
    "FLASH_BUNDLES": FLASH_BUNDLES,
    "FLASH_NEW": FLASH_NEW,
}
