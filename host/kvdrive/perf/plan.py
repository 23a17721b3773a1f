"""What a decode step would take with K and V on drives that attend: the parts, what bounds them, and what to change.

Times are modelled from published rates: bytes over rates, and FLOP over rates. Nothing is fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from kvdrive.perf import xcache
from kvdrive.perf.kernel import kernel_rate
from kvdrive.perf.shapes import HALF_BYTES, LARGE, ModelShape
from kvdrive.perf.systems import System

PAGE_BYTES = 4096
DAY = 86400
WeightsOn = Literal["processor", "host", "drives"]


@dataclass(frozen=True)
class Part:
    """Something that takes time in a decode step. `bound`: by what."""

    name: str
    seconds: float
    bound: str


@dataclass(frozen=True)
class Plan:
    """A decode step of a batch. `alpha`: the share of the work that X-cache takes; `reason` says why.

    `weights_on`: where the weights are. From the host, or from the drives, they come in each step, a layer ahead.

    `step`: one part after the other, for the batch as one. `overlapped`: for two mini-batches, which take turns.
    """

    model: ModelShape
    system: System
    tokens: int
    batch: int
    drives: int
    alpha: float
    reason: str
    parts: tuple[Part, ...]
    weights_on: WeightsOn

    @property
    def step(self) -> float:
        """Seconds of one step, one part after the other."""
        return sum(part.seconds for part in self.parts)

    @property
    def overlapped(self) -> float:
        """Seconds of one step in two mini-batches, which take turns on the processor and on the drives.

        Each of them takes the model's part as long as the whole batch does, since it reads the same weights. It gains
        nothing where everything computes on the same cores, or where the drives that attend also read the weights.
        """
        if self.system.shared or self.weights_on == "drives" or self.batch == 1:
            return self.step
        dense = self.parts[0].seconds
        return max(2 * dense, self.step - dense)

    @property
    def throughput(self) -> float:
        """Tokens per second of the whole batch."""
        return self.batch / self.step

    @property
    def stored(self) -> float:
        """Bytes of K and V, or X, on each drive."""
        kv = self.model.kv_bytes(self.batch, self.tokens)
        return kv * xcache.written(self.model, self.alpha) / self.drives

    @property
    def weights_read(self) -> float:
        """Bytes of weights that a step uses, wherever they are."""
        return step_weights(self.model, self.batch)

    @property
    def weights_rate(self) -> float:
        """Bytes per second at which they come."""
        return weights_rate(self.system, self.drives, self.weights_on)

    @property
    def weights_rate_needed(self) -> float:
        """Bytes per second at which weights would take no longer than the rest of the step."""
        return self.weights_read / (self.step - self.parts[0].seconds)

    @property
    def interval(self) -> int:
        """Tokens between two writes: as many rows as fill a page."""
        return max(1, PAGE_BYTES // (self.model.head_dim * HALF_BYTES))

    @property
    def pending(self) -> float:
        """Bytes of host memory for tokens that wait for a write."""
        return float(self.model.kv_bytes(self.batch, self.interval))

    @property
    def batch_limit(self) -> int:
        """The most sequences whose part fits the processor's memory, beside the weights that are there.

        Of each sequence these are the tokens that wait for a write, and K and V of two layers where they are rebuilt.
        """
        layers = self.model.layers
        weights = self.model.weight_bytes * (1 if self.weights_on == "processor" else 2 / layers)
        rebuilt = 2 * self.alpha * self.model.kv_bytes(1, self.tokens) / layers
        each = self.model.kv_bytes(1, self.interval) + rebuilt
        return max(0, int((self.system.memory - weights) / each))

    @property
    def drives_needed(self) -> int:
        """The fewest drives that hold K and V, and the weights if they are there."""
        weights = self.model.weight_bytes if self.weights_on == "drives" else 0
        return max(1, math.ceil((self.stored * self.drives + weights) / self.system.drive.capacity))

    @property
    def years(self) -> float | None:
        """Years of decoding without a pause until a drive has written what it may; None where that is not published."""
        if not self.system.drive.written:
            return None
        rate = self.stored / self.tokens / self.step  # one token of each sequence per step
        return self.system.drive.written / rate / (365 * DAY)

    @property
    def advice(self) -> str:
        """What to change first."""
        longest = max(self.parts, key=lambda part: part.seconds)
        if self.drives < self.drives_needed:
            return f"{'weights, ' if self.weights_on == 'drives' else ''}K and V need {self.drives_needed} drives"
        if self.batch > self.batch_limit:
            less = "a smaller batch, or a smaller share of X-cache" if self.alpha else "a smaller batch"
            return f"the processor's memory holds what {self.batch_limit} sequences need there: {less}"
        if self.system.shared:
            what = "the model's matrices" if longest is self.parts[0] else "attention"
            return f"{what} take{'s' if what == 'attention' else ''} longest, on the cores that do everything here"
        if longest is self.parts[0]:
            if self.weights_on == "processor":
                return "the model's own weights take longest: a larger batch costs little"
            if self.weights_on == "drives":
                return "weights that come from the drives take longest: take more drives, or a larger batch"
            return "weights that come from the host take longest: use a processor that holds them, or a larger batch"
        if longest.bound == "drives":
            return f"drives take longest: {2 * self.drives} of them halve that part"
        return f"{longest.bound} takes longest: a smaller share of X-cache, or a faster {longest.bound}"


def step_weights(model: ModelShape, batch: int) -> float:
    """Bytes of the weights that a step uses, the embedding's matrix included."""
    return HALF_BYTES * (model.step_weights(batch) + model.vocabulary * model.hidden)


def weights_rate(system: System, drives: int, place: WeightsOn) -> float:
    """Bytes per second at which weights come from where they are."""
    from_drives = min(drives * system.drive.rate, system.link)
    return {"processor": system.memory_rate, "host": system.link, "drives": from_drives}[place]


def plan(
    model: ModelShape,
    system: System,
    tokens: int,
    batch: int,
    drives: int,
    alpha: float | None = None,
    flop_per_weight: float = xcache.FLOP_PER_WEIGHT,
) -> Plan:
    """Plan a decode step of `batch` sequences of `tokens` tokens. `alpha` None: the best share of X-cache.

    `flop_per_weight`: FLOP that rebuilding K and V of a token takes for a weight of both projections.
    """
    inside = min(system.drive.rate, kernel_rate(model.group)) * drives
    rates = xcache.Rates(inside, system.link, system.flops, flop_per_weight)
    cached = tokens * batch
    best = xcache.chosen(model, cached, rates)
    reason = _reason(model, rates, cached, best)
    if alpha is None:
        alpha = best
    elif alpha != best:
        reason = f"asked for; {best:g} is faster"
    attention = xcache.times(model, cached, alpha, rates)
    bound = max(
        ("drives", attention.drive), ("link", attention.link), ("processor", attention.compute), key=lambda p: p[1]
    )
    weights_on: WeightsOn = "drives" if model.weight_bytes > LARGE else "host"
    if model.weight_bytes <= system.memory:
        weights_on = "processor"
    weights = step_weights(model, batch) / weights_rate(system, drives, weights_on)
    computed = batch * model.active_weight_bytes / system.flops  # 2 FLOP for each weight of 2 bytes
    dense = Part("model", max(weights, computed), "compute" if computed > weights else "weights")
    exchanged = 2 * model.layers * system.exchange(batch * model.hidden * HALF_BYTES)  # after attention, after the FFN
    crossing = batch * model.layers * HALF_BYTES * (2 * model.hidden + 2 * model.kv_heads * model.head_dim)
    return Plan(
        model,
        system,
        tokens,
        batch,
        drives,
        alpha,
        reason,
        (
            dense,
            Part("attention", attention.step, bound[0]),
            Part("queries and outputs", crossing / system.link, "link"),
            *([Part("sums over GPUs", exchanged, "link")] if exchanged else []),
        ),
        weights_on,
    )


def _reason(model: ModelShape, rates: xcache.Rates, tokens: int, best: float) -> str:
    if best:
        gain = xcache.times(model, tokens, 0, rates).step / xcache.times(model, tokens, best, rates).step
        return f"{gain:.2f} times as fast as without"
    if model.x_bytes_per_token >= model.kv_bytes_per_token:
        more = model.x_bytes_per_token / model.kv_bytes_per_token
        return f"X of a token is {more:g} times its K and V"
    return "the link or the processor would take longer than the drives save"
