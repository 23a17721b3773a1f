"""Machines that `kvdrive plan` knows: a processor that runs the model, and drives that attend. SI units."""

from __future__ import annotations

from dataclasses import dataclass

from kvdrive.perf.hardware import INSTCSD_CHANNELS, PCIE4_X16_EFFECTIVE, SMARTSSD_P2P, SMARTSSD_WRITTEN


@dataclass(frozen=True)
class Drives:
    """One drive: bytes per second to its engine, capacity, bytes that it may write in its life (0: not published)."""

    name: str
    rate: float
    capacity: float
    written: float
    source: str


@dataclass(frozen=True)
class System:
    """The processor that runs the model (`flops`, `memory_rate`, bytes of `memory`), and the rate of the link to it
    from drives and host."""

    name: str
    processor: str
    flops: float
    memory_rate: float
    memory: float
    link: float
    drive: Drives
    source: str


SMARTSSD = Drives(
    "SmartSSD", SMARTSSD_P2P.value, 3.84e12, SMARTSSD_WRITTEN.value, f"{SMARTSSD_P2P.source}; {SMARTSSD_WRITTEN.source}"
)
INSTCSD = Drives("InstCSD", INSTCSD_CHANNELS.value, 2e12, 0, INSTCSD_CHANNELS.source)
ISP_CSD = Drives("ISP-CSD", 16e9, 16e12, 0, "paper: HILOS, section 7.1: 8 channels of 2000 MT/s")

_LINK = PCIE4_X16_EFFECTIVE.value
SYSTEMS = {
    system.name: system
    for system in (
        System("a100-smartssd", "A100 40 GB", 312e12, 1.555e12, 40e9, _LINK, SMARTSSD, "published: NVIDIA A100"),
        System(
            "h100-smartssd",
            "H100 80 GB",
            989e12,
            3.35e12,
            80e9,
            2 * _LINK,
            SMARTSSD,
            "published: NVIDIA H100; link: PCI Express 5.0 as twice 4.0",
        ),
        System("a6000-instcsd", "RTX A6000", 154.8e12, 768e9, 48e9, _LINK, INSTCSD, "published: NVIDIA RTX A6000"),
        System("4090-smartssd", "RTX 4090", 165.2e12, 1.008e12, 24e9, _LINK, SMARTSSD, "published: NVIDIA RTX 4090"),
        System("a100-isp", "A100 80 GB", 312e12, 2.039e12, 80e9, _LINK, ISP_CSD, "published: NVIDIA A100"),
    )
}
