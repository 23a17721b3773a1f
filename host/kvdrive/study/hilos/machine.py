"""HILOS' machine, and the systems that it is compared with there."""

from __future__ import annotations

from kvdrive.perf import hardware
from kvdrive.study.attention_store.inputs import A100_USE
from kvdrive.study.hilos.inputs import CPU_ATTENTION
from kvdrive.study.model.decode import Machine, Offloading, Step, Work, offloaded

HILOS = Machine(
    "HILOS",
    hardware.A100_40,
    hardware.XEON_6342,
    hardware.PCIE4_X16_EFFECTIVE,
    hardware.PM9A3,
    4,
    hardware.SMARTSSD,
    A100_USE,
)


def flexgen(machine: Machine, work: Work, ssds: float | None = None) -> Step:
    """FlexGen with K and V on SSDs (`ssds`: their rate; default: the machine's), attention on the CPU."""
    rate = machine.ssds * machine.ssd.read.value if ssds is None else ssds
    return offloaded(machine, work, Offloading(rate, cpu=CPU_ATTENTION.value))


def flexgen_dram(machine: Machine, work: Work) -> Step:
    """FlexGen with K and V in host memory, attention on the CPU."""
    return offloaded(machine, work, Offloading(None, cpu=CPU_ATTENTION.value))
