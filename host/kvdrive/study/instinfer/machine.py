"""InstInfer's machine, and the systems that it is compared with there: where their K and V fit decides how fast."""

from __future__ import annotations

from kvdrive.perf import hardware
from kvdrive.study.instinfer import inputs
from kvdrive.study.model import decode
from kvdrive.study.model.decode import Machine, Offloading, Step, Work, offloaded

ANSWER = 2048  # tokens of a sequence at its end, for which memory is reserved
_HOST = 0.9  # of host memory: the rest is the system's and what the weights are loaded through

INSTINFER = Machine(
    "InstInfer",
    hardware.A6000,
    hardware.XEON_5320,
    hardware.PCIE4_X16,
    hardware.SSD_980_PRO,
    1,
    hardware.INSTCSD,
    inputs.A6000_USE,
    inputs.FLEXGEN_LAYER,
    inputs.INSTINFER_COMMAND,
)


def in_gpu(work: Work) -> bool:
    """True if weights, K and V fit the GPU."""
    return decode.in_gpu(INSTINFER, work.model.weight_bytes + work.model.kv_bytes(work.batch, ANSWER))


def in_host(work: Work, copies: int = 1) -> bool:
    """True if so many copies of K and V fit host memory."""
    return copies * work.model.kv_bytes(work.batch, ANSWER) <= _HOST * INSTINFER.host.memory.value


def flexgen(work: Work, ssds: int = 1) -> Step:
    """FlexGen: K and V in the GPU, else in host memory, else on SSDs. Its path from SSDs to the GPU is slower than one
    of them, and no faster with more."""
    if in_gpu(work):
        return decode.resident(INSTINFER, work)
    software = inputs.FLEXGEN_LAYER.value
    if in_host(work):
        return offloaded(INSTINFER, work, Offloading(None, INSTINFER.link.value, software=software))
    path = inputs.FLEXGEN_RATE.value * (inputs.FLEXGEN_SECOND_SSD.value if ssds > 1 else 1)
    rate = min(ssds * INSTINFER.ssd.read.value, path)
    return offloaded(INSTINFER, work, Offloading(rate, INSTINFER.link.value, software=software))


def deepspeed(work: Work) -> Step:
    """DeepSpeed: K and V in the GPU, else twice in host memory, one copy pinned; if they do not fit, it swaps."""
    if in_gpu(work):
        return decode.resident(INSTINFER, work)
    rate = inputs.DEEPSPEED_RATE.value if in_host(work, 2) else inputs.DEEPSPEED_SWAP.value
    return offloaded(INSTINFER, work, Offloading(None, rate))
