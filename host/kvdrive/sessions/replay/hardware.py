"""The machine of a replay: rates, sizes and prices, by default those of AttentionStore's paper."""

from __future__ import annotations

from dataclasses import dataclass

GB = 10**9


@dataclass(frozen=True)
class Model:
    """`bytes_per_token` of K and V; `prefill`, `decode`: seconds per token."""

    bytes_per_token: int
    prefill: float
    decode: float = 0.03


_PREFILL_65B = 0.360 / 2048  # published; those of the other models are in proportion to their parameters
MODELS = {
    "llama-13b": Model(780_000, _PREFILL_65B * 13 / 65),
    "llama-65b": Model(2_500_000, _PREFILL_65B),
    "llama-70b": Model(310_000, _PREFILL_65B * 70 / 65),
    "falcon-40b": Model(120_000, _PREFILL_65B * 40 / 65),
}


@dataclass(frozen=True)
class Machine:
    """`memory`, `disk`: bytes for kept sessions. `pcie`, `disk_rate`: bytes a second. `slots`: sequences at once.

    `overlap`: K and V of a layer load while the one before computes. `in_place`: attention is in the drive, and nothing
    is loaded. `prefetch`: waiting requests' sessions go from disk to memory before they run. Prices in USD an hour.
    """

    memory: int = 128 * GB
    disk: int = 10_000 * GB
    pcie: float = 26e9
    disk_rate: float = 5e9
    slots: int = 24
    overlap: bool = True
    in_place: bool = False
    prefetch: bool = True
    gpus: int = 4
    gpu_price: float = 5.0
    memory_price: float = 0.0088  # of a GB
    disk_price: float = 0.000082  # of a GB
