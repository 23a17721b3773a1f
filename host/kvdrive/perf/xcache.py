"""Cooperative X-cache (HILOS): which share of the work stores a layer's input X instead of K and V.

For that share the host or GPU reads X and rebuilds K and V; the drives attend to the rest meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvdrive.perf.shapes import HALF_BYTES, ModelShape

FLOP_PER_WEIGHT = 4.0  # X times two projections, 2 FLOP each; the paper prints 2 for both


@dataclass(frozen=True)
class Rates:
    """Bytes per second inside the drives (`drive`) and over the host interface (`link`); FLOP per second that rebuild K
    and V (`compute`), of which a weight of the two projections takes `flop_per_weight` for both."""

    drive: float
    link: float
    compute: float = math.inf
    flop_per_weight: float = FLOP_PER_WEIGHT


@dataclass(frozen=True)
class Times:
    """Seconds of one decode step's attention, by what takes them."""

    link: float
    compute: float
    drive: float

    @property
    def step(self) -> float:
        """The three overlap."""
        return max(self.link, self.compute, self.drive)


def times(shape: ModelShape, tokens: int, alpha: float, rates: Rates) -> Times:
    """Times of a step with `tokens` tokens in the caches of the batch; a share `alpha` of them is stored as X."""
    x, kv = shape.x_bytes_per_token * tokens, shape.kv_bytes_per_token * tokens
    projected = rates.flop_per_weight / 2 * shape.layers * shape.hidden * shape.kv_heads * shape.head_dim * tokens
    return Times(
        link=alpha * x / rates.link,
        compute=alpha * projected / rates.compute,
        drive=(alpha * x + (1 - alpha) * kv) / rates.drive,
    )


def closed_form(rates: Rates) -> float:
    """The share at which link and drives take as long, one KV head for each query head; at most 1."""
    return min(1.0, 2 * rates.link / (rates.drive + rates.link))


def best(shape: ModelShape, tokens: int, rates: Rates, steps: int = 4096) -> float:
    """The share with the shortest step, found by trying `steps` + 1 of them."""
    return min((i / steps for i in range(steps + 1)), key=lambda alpha: times(shape, tokens, alpha, rates).step)


def chosen(shape: ModelShape, tokens: int, rates: Rates) -> float:
    """The share that a runtime uses: 0 or a power of two, whichever has the shortest step."""
    return min((0.0, 0.125, 0.25, 0.5, 1.0), key=lambda alpha: times(shape, tokens, alpha, rates).step)


def written(shape: ModelShape, alpha: float) -> float:
    """Bytes written with a share `alpha` of X-cache, over those without."""
    return 1 - alpha + alpha * shape.x_bytes_per_token / shape.kv_bytes_per_token


def interface_ratio(tokens: int) -> float:
    """Bytes over the host interface when K and V are read, over those when drives attend: q, k, v in, out back."""
    return (4 * tokens + 4) * HALF_BYTES / (2 * 4 * HALF_BYTES)
