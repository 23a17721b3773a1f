"""Power, money and wear of a decode step. Powers are those of data sheets, drawn all the time."""

from __future__ import annotations

from kvdrive.perf import hardware
from kvdrive.study.model.decode import Machine, Step

YEARS = 3
_SECONDS = YEARS * 365 * 86400


def watts_by_part(machine: Machine, drives: int) -> dict[str, float]:
    """GPU, processor, memory, and `drives` attending drives, or the machine's SSDs where there are none."""
    host = machine.host
    return {
        "GPU": machine.gpu.watts.value,
        "CPU": host.watts.value,
        "DRAM": host.memory.value / 1e9 * host.watts_per_gb.value,
        "drives": drives * machine.drive.watts.value if drives else machine.ssds * machine.ssd.watts.value,
    }


def watts(machine: Machine, drives: int) -> float:
    """The whole machine."""
    return sum(watts_by_part(machine, drives).values())


def joules_per_token(machine: Machine, step: Step, drives: int) -> float:
    """Energy of a token."""
    return watts(machine, drives) / step.throughput


def price(machine: Machine, drives: int) -> float:
    """US dollars of server, GPU and storage."""
    storage = drives * machine.drive.usd.value + hardware.EXPANSION_USD.value if drives else 0.0
    return hardware.SERVER_USD.value + machine.gpu.usd.value + (storage or machine.ssds * machine.ssd.usd.value)


def tokens_per_usd(machine: Machine, step: Step, drives: int) -> float:
    """Tokens per second over the price, as HILOS has it in figure 16."""
    return step.throughput / price(machine, drives)


def usd_per_million_tokens(machine: Machine, step: Step, drives: int) -> float:
    """The price over what the machine generates in YEARS years, without power."""
    return 1e6 * price(machine, drives) / (_SECONDS * step.throughput)


def years(machine: Machine, step: Step, drives: int) -> float:
    """Years of decoding without a pause until attending drives have written what they may."""
    return machine.drive.written.value * drives / (step.written / step.seconds) / (365 * 86400)
