"""Inputs of the models that are results of HILOS."""

from __future__ import annotations

from kvdrive.perf import hardware
from kvdrive.study.hilos import stated
from kvdrive.study.inputs import Input


def _cpu_attention() -> float:
    drives = stated.FLEXGEN_GAIN.value / (16 * hardware.SMARTSSD_P2P.value)
    return 1 / (drives - 1 / (4 * hardware.PM9A3.read.value))


CPU_ATTENTION = Input(
    _cpu_attention,
    "B/s",
    "K and V that FlexGen's attention on the CPU takes: with 4 SSDs it lasts 3.39 times as long as 16 drives of 3 GB/s",
)
