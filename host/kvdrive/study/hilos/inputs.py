"""The input of the models that is a result of HILOS: at which rate FlexGen copies there. Nothing else is fitted."""

from __future__ import annotations

from collections.abc import Callable

from kvdrive.perf.shapes import OPT_30B, OPT_66B, OPT_175B
from kvdrive.study.hilos import machine, stated
from kvdrive.study.hilos.machine import BATCH, DRIVES, HILOS
from kvdrive.study.inputs import Input
from kvdrive.study.model import decode
from kvdrive.study.model.decode import Attending, Work
from kvdrive.study.stated import remembered

OPTS = (OPT_30B, OPT_66B, OPT_175B)
LONG = (32768, 65536, 131072)  # tokens of the contexts that the fits are over
_WORKS = tuple(Work(model, BATCH, tokens) for model in OPTS for tokens in LONG)
_FASTEST = 1e12  # bytes per second that no host memory has


@remembered
def _copied() -> float:
    gain = stated.FLEXGEN_GAIN.value
    how = Attending(DRIVES, interval=0)
    ours = [decode.attended(HILOS, work, how).throughput for work in _WORKS]

    def most(rate: float) -> float:
        return max(a / machine.flexgen(work, rate).throughput for a, work in zip(ours, _WORKS, strict=True))

    return _solved(lambda rate: most(rate) - gain)


def _solved(falls: Callable[[float], float]) -> float:
    """Where a function that falls with a rate is 0, to a thousandth."""
    low, high = 1e8, _FASTEST
    while high > 1.001 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if falls(middle) > 0 else (low, middle)
    return low


FLEXGEN_COPY = Input(
    _copied,
    "B/s",
    "K and V that FlexGen copies on their way from SSDs to the CPU: 8 drives that attend, nothing else, are at most "
    "3.39 times as fast",
)
