"""What a sequence takes on this machine, stored as K and V or as X: measured in about a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.backing import Backing, drop
from kvdrive.kvcache.sequence import Endpoint, Sequence, gather
from kvdrive.kvcache.session import Query
from kvdrive.kvcache.xcache.inputs import InputStats, XCache
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.commands import Halves, flush
from kvdrive.targets.base import Target
from kvdrive.targets.group import split

_FEW, _MANY = 256, 2048  # tokens that are measured; whole blocks of projections
_ROUNDS = 3


@dataclass(frozen=True)
class Line:
    """Seconds of one sequence and layer: `fixed`, and more for each token that it holds."""

    fixed: float
    token: float

    @classmethod
    def through(cls, few: tuple[int, float], many: tuple[int, float]) -> Line:
        """The line through two measurements: tokens and seconds."""
        token = max(many[1] - few[1], 0.0) / (many[0] - few[0])
        return cls(max(few[1] - token * few[0], 0.0), token)

    def at(self, tokens: int) -> float:
        """Seconds with `tokens` tokens."""
        return self.fixed + self.token * tokens


@dataclass(frozen=True)
class Measured:
    """`attend`: in the drives, to K and V. `read`: X from the drives. `project`: K and V from X. `memory`: attention to
    them. `shared`: drives and host compute on the same cores, so that they take turns.
    """

    attend: Line
    read: Line
    project: Line
    memory: Line
    shared: bool

    def rebuilt(self, tokens: int) -> float:
        """Seconds of one sequence and layer that is stored as X."""
        return self.read.at(tokens) + self.project.at(tokens) + self.memory.at(tokens)

    def step(self, tokens: int, as_kv: int, as_inputs: int) -> float:
        """Seconds of a layer's attention in a decode step of so many sequences."""
        drives, host = as_kv * self.attend.at(tokens), as_inputs * self.rebuilt(tokens)
        return drives + host if self.shared else max(drives + as_inputs * self.read.at(tokens), host)


@dataclass(frozen=True)
class Heads:
    """Shape of a layer's attention."""

    query_heads: int
    kv_heads: int
    head_dim: int


def measure(xcache: XCache, backing: Backing, heads: Heads, shared: bool, most: int = _MANY) -> Measured:
    """Measure on the drives of `backing`, with up to `most` tokens, which are removed again.

    Raises CommandError, TargetError.
    """
    layer = min(xcache.projections.modules)
    queues = backing.alive
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(most, xcache.rows.width, generator=generator).to(xcache.rows.dtype)
    zeros = np.zeros(heads.kv_heads, np.int64)
    as_kv = Sequence.open(queues, split(1, heads.kv_heads, len(queues))[0], 0, backing.label)
    opened: list[Sequence] = [as_kv]
    try:
        slices = Sequence.open(queues, split(1, xcache.rows.slices, len(queues))[0], 0, backing.label).slices
        as_inputs = InputSequence(slices, xcache)
        opened.append(as_inputs)
        times = []
        first = 0
        for tokens in (_FEW, most):
            as_inputs.note(layer, first, x[first:tokens], np.arange(first, tokens), (zeros, zeros))
            rebuilt = as_inputs.project(layer, x[first:tokens], first)
            for sequence in opened:
                sequence.append(layer, first, rebuilt.k, rebuilt.v, lambda seconds: None).wait()
            gather([one.queue.start(_flush) for one in as_kv])
            times.append(_times(xcache, as_kv, as_inputs, layer, tokens, heads))
            first = tokens
    finally:
        drop(opened)
        xcache.stats = InputStats()
    attend, read, project, memory = (Line.through((_FEW, few), (most, many)) for few, many in zip(*times, strict=True))
    return Measured(attend, read, project, memory, shared)


def _times(
    xcache: XCache, as_kv: Sequence, as_inputs: InputSequence, layer: int, tokens: int, heads: Heads
) -> tuple[float, float, float, float]:
    """Seconds of attention in the drives, of reading X, of projecting it, and of attention in memory."""
    group = heads.query_heads // heads.kv_heads
    scale = scale_bits(None, heads.head_dim)

    def q(count: int) -> Halves:
        return np.ones((count, group, heads.head_dim), np.float16)

    def ask(one: Endpoint) -> Callable[[Target], object]:
        query = Query(one.session, layer, q(one.last - one.first), tokens, scale)
        return lambda target: one.answer(target, [query])

    attend = _best(lambda: gather([one.queue.start(ask(one)) for one in as_kv.endpoints()]))
    rebuild, project = [], []
    for _ in range(_ROUNDS):
        as_inputs.keep(tokens)  # what was rebuilt before
        before, began = xcache.stats.rebuild_seconds, time.perf_counter()
        rebuilt = as_inputs.take(layer)
        rebuild.append(time.perf_counter() - began)
        project.append(xcache.stats.rebuild_seconds - before)
    read = min(whole - part for whole, part in zip(rebuild, project, strict=True))
    query = Query(as_kv.slices[0].session, layer, q(heads.kv_heads), tokens, scale)
    memory = _best(lambda: xcache.attention.attend(query, rebuilt.k, rebuilt.v))
    return attend, read, min(project), memory


def _flush(target: Target) -> None:
    target.execute(flush())


def _best(work: Callable[[], object]) -> float:
    """The shortest time of some rounds."""
    found = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)
