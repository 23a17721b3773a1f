"""InstInfer's machine, and the systems that it is compared with there."""

from __future__ import annotations

from kvdrive.perf import hardware
from kvdrive.study.instinfer import inputs
from kvdrive.study.model.decode import Machine, Offloading, Step, Work, offloaded

INSTINFER = Machine(
    "InstInfer",
    hardware.A6000,
    hardware.XEON_5320,
    hardware.PCIE4_X16,
    hardware.SSD_980_PRO,
    1,
    hardware.INSTCSD,
    inputs.A6000_USE,
    inputs.INSTINFER_LAYER,
)


def flexgen_one_ssd(machine: Machine, work: Work, ssds: int = 1) -> Step:
    """FlexGen as InstInfer measured it: its path to the GPU is slower than one SSD, and no faster with more of them."""
    path = inputs.FLEXGEN_RATE.value * (inputs.FLEXGEN_SECOND_SSD.value if ssds > 1 else 1)
    rate = min(ssds * machine.ssd.read.value, path)
    return offloaded(machine, work, Offloading(rate, machine.link.value))


def deepspeed(machine: Machine, work: Work) -> Step:
    """DeepSpeed with K and V in host memory. It swaps unless weights and two copies of K and V fit (one is pinned)."""
    whole = work.model.kv_bytes(work.batch, work.tokens)
    fits = 2 * whole + work.model.weight_bytes <= machine.host.memory.value
    rate = inputs.DEEPSPEED_RATE.value if fits else inputs.DEEPSPEED_SWAP.value
    return offloaded(machine, work, Offloading(None, rate))
