"""HILOS' machine, and the systems that it is compared with there."""

from __future__ import annotations

from dataclasses import replace

from kvdrive.perf import hardware
from kvdrive.study.attention_store.inputs import A100_USE
from kvdrive.study.model import decode
from kvdrive.study.model.decode import Attending, Machine, Offloading, Step, Work

BATCH = 16
DRIVES = 8  # section 6.1: SmartSSDs where nothing else is said
SHARES = (0.0, 0.125, 0.25, 0.5, 1.0)  # of the work as X: powers of two, section 4.2

HILOS = Machine(
    "HILOS",
    hardware.A100_40,
    hardware.XEON_6342,
    hardware.PCIE4_X16_EFFECTIVE,
    hardware.PM9A3,
    4,
    hardware.SMARTSSD,
    A100_USE,
    uplink=hardware.SMARTSSD_UPLINK,
)
WITH_H100 = replace(HILOS, gpu=hardware.H100_80)
CLUSTER = replace(HILOS, gpu=hardware.A6000)  # of two hosts with four GPUs each, which run vLLM
CLUSTER_GPUS = 8

# Bytes that pass memory for each byte of K and V when FlexGen attends on the CPU (`mha_gen`, pytorch_backend.py,
# github.com/FMInference/FlexLLMGen); what is written is read before.
_PASSES = {"permute and reshape": 1 + 2 * 1, "float": 1 + 2 * 2, "bmm": 2}
CPU_ATTENTION = HILOS.host.memory_rate.value * hardware.MEMORY_SUSTAINED.value / sum(_PASSES.values())


def fastest(work: Work, drives: int) -> Step:
    """A step with the best share of X-cache."""
    return min((decode.attended(HILOS, work, Attending(drives, share)) for share in SHARES), key=_seconds)


def flexgen(work: Work, copied: float, storage: float | None = None, machine: Machine = HILOS) -> Step:
    """FlexGen with K and V on SSDs (`storage`: their rate; default: the machine's), and attention on the CPU.

    Its software has `copied` so many bytes per second.
    """
    rate = machine.ssds * machine.ssd.read.value if storage is None else storage
    return decode.offloaded(machine, work, Offloading(rate, cpu=CPU_ATTENTION, copied=copied))


def flexgen_dram(work: Work) -> Step | None:
    """FlexGen with weights, K and V in host memory, with as many sequences as fit; None if none does."""
    fits = min(work.batch, decode.host_batch(HILOS, work.model, work.tokens))
    if not fits:
        return None
    return decode.offloaded(HILOS, Work(work.model, fits, work.tokens), Offloading(None, cpu=CPU_ATTENTION))


def _seconds(step: Step) -> float:
    return step.seconds
