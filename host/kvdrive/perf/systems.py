"""Machines that `kvdrive plan` knows: a processor that runs the model, and drives that attend. SI units."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvdrive.perf import hardware
from kvdrive.perf.hardware import AttendingDrive, Figure, Gpu


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
    from drives and host.

    `shared`: drives and model compute on the same cores, so that nothing overlaps. `gpus`: processors that each hold a
    part of every matrix; rates and memory are those of all of them together.
    """

    name: str
    processor: str
    flops: float
    memory_rate: float
    memory: float
    link: float
    drive: Drives
    source: str
    shared: bool = False
    gpus: int = 1

    def of_gpus(self, count: int) -> System:
        """The same with so many processors in one host, each with a link of its own to host and drives."""
        if count == 1:
            return self
        return replace(
            self,
            processor=f"{count} x {self.processor}",
            flops=count * self.flops,
            memory_rate=count * self.memory_rate,
            memory=count * self.memory,
            link=count * self.link,
            gpus=count,
        )

    def exchange(self, size: float) -> float:
        """Seconds in which the processors sum a vector of `size` bytes, a part of which each of them has: over their
        links, without a bridge between them. 0 for one.
        """
        if self.gpus == 1:
            return 0.0
        return hardware.GPUS_LATENCY.value + 2 * (self.gpus - 1) * size / self.link


def _drive(of: AttendingDrive) -> Drives:
    sources = "; ".join(figure.source for figure in (of.rate, of.capacity, of.written))
    return Drives(of.name, of.rate.value, of.capacity.value, of.written.value, sources)


def _system(name: str, gpu: Gpu, link: Figure, drive: AttendingDrive) -> System:
    sources = "; ".join(figure.source for figure in (gpu.flops, gpu.memory_rate, gpu.memory, link))
    return System(
        name, gpu.name, gpu.flops.value, gpu.memory_rate.value, gpu.memory.value, link.value, _drive(drive), sources
    )


SYSTEMS = {
    system.name: system
    for system in (
        _system("a100-smartssd", hardware.A100_40, hardware.PCIE4_X16_EFFECTIVE, hardware.SMARTSSD),
        _system("h100-smartssd", hardware.H100_80, hardware.PCIE5_X16_EFFECTIVE, hardware.SMARTSSD),
        _system("a6000-instcsd", hardware.A6000, hardware.PCIE4_X16_EFFECTIVE, hardware.INSTCSD),
        _system("4090-smartssd", hardware.RTX_4090, hardware.PCIE4_X16_EFFECTIVE, hardware.SMARTSSD),
        _system("a100-isp", hardware.A100_80, hardware.PCIE4_X16_EFFECTIVE, hardware.ISP_CSD),
    )
}
