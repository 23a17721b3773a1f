"""Time to the first token of a turn whose history is loaded by layer instead of computed again (AttentionStore)."""

from __future__ import annotations

from dataclasses import dataclass

from kvdrive.perf import hardware
from kvdrive.perf.shapes import ModelShape


@dataclass(frozen=True)
class Machine:
    """`gpus` of `flops` at `efficiency`; K and V load at `link` bytes per second for each GPU."""

    gpus: int
    efficiency: float
    flops: float = hardware.A100_FLOPS.value
    link: float = hardware.PCIE4_X16_EFFECTIVE.value

    @property
    def rate(self) -> float:
        """FLOP per second that a prefill reaches."""
        return self.gpus * self.flops * self.efficiency


def efficiency(shape: ModelShape, tokens: int, seconds: float, gpus: int) -> float:
    """The share of the GPUs' FLOP that a prefill of known time reaches."""
    return shape.prefill_flop(tokens) / seconds / (gpus * hardware.A100_FLOPS.value)


def recomputed(shape: ModelShape, machine: Machine, batch: int, history: int, new: int) -> float:
    """Seconds to compute history and new tokens."""
    return batch * shape.prefill_flop(history + new) / machine.rate


def load_seconds(shape: ModelShape, machine: Machine, batch: int, history: int) -> float:
    """Seconds to load the history's K and V."""
    return shape.kv_bytes(batch, history) / machine.link


def preloaded(
    shape: ModelShape, machine: Machine, batch: int, history: int, new: int, buffered: int | None = None
) -> float:
    """Seconds until all layers have computed the new tokens, when each layer waits for its own K and V only.

    `buffered` layers are loaded before the turn starts; None: nothing is computed before everything is loaded.
    """
    load = load_seconds(shape, machine, batch, history)
    compute = batch * shape.prefill_flop(new, history) / machine.rate
    if buffered is None:
        return load + compute
    done = 0.0
    for layer in range(shape.layers):
        arrived = max(0, layer + 1 - buffered) * load / shape.layers
        done = max(done, arrived) + compute / shape.layers
    return done


def hourly(gpus: int, dram_gb: float, ssd_gb: float) -> tuple[float, float]:
    """USD per hour of the GPUs, and of the storage."""
    storage = dram_gb * hardware.DRAM_GB_HOUR.value + ssd_gb * hardware.SSD_GB_HOUR.value
    return gpus * hardware.A100_HOUR.value, storage


def saving(speedup: float, gpus: int, dram_gb: float = 128, ssd_gb: float = 10_000) -> float:
    """The share of the cost that storage saves when GPU time falls by `speedup`."""
    compute, storage = hourly(gpus, dram_gb, ssd_gb)
    return 1 - (compute + storage) / speedup / compute
