"""The share of the sequences that X-cache takes, from what was measured, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvdrive.kvcache.xcache.measured import Measured

SHARES = (0.0, 0.125, 0.25, 0.5, 1.0)  # powers of two
_CONTEXT = 32768  # of the comparison: long, so that what is the same for any context does not count
_BATCH = 8  # sequences that each of the shares divides


@dataclass(frozen=True)
class Choice:
    """`share` of the sequences, and why, in one sentence without its full stop."""

    share: float
    reason: str


def choose(x_bytes: int, kv_bytes: int, measure: Callable[[], Measured]) -> Choice:
    """The share with the shortest step. `x_bytes` and `kv_bytes`: of a token in one layer, as stored."""
    larger = x_bytes / kv_bytes
    if larger >= 1:
        return Choice(0.0, f"X of a token is {larger:.3g} times its K and V, so that nothing is saved")
    rates = measure()

    def seconds(share: float) -> float:
        as_inputs = int(share * _BATCH)
        return rates.step(_CONTEXT, _BATCH - as_inputs, as_inputs)

    best = min(SHARES, key=seconds)
    if best:
        gain = seconds(0.0) / seconds(best)
        return Choice(best, f"measured here, attention takes {gain:.2f} times as long without X-cache")
    slower = rates.rebuilt(_CONTEXT) / rates.attend.at(_CONTEXT)
    return Choice(0.0, f"measured here, rebuilding K and V takes {slower:.1f} times as long as the drives' attention")
