"""What a sequence takes on this machine, stored as K and V or as X."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.drive_rates import FEW, MANY, Clock, Heads, Line, drive_rates, medians
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.session import Query
from kvdrive.kvcache.xcache.attention import MemoryAttention
from kvdrive.kvcache.xcache.inputs import XCache
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.perf import stored_rates
from kvdrive.perf.stored_rates import StoredRates

NOTHING = Line(0.0, 0.0)
_TURNS = 9
Work = Callable[[MemoryAttention], object]


@dataclass(frozen=True)
class Measured:
    """Seconds of one sequence and layer, by tokens. `attend`: in the drives, to K and V. `read`: X from the drives.
    `project`: K and V from X. `memory`: attention to them.

    `shared`: drives and host compute on the same cores, so that they take turns.
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
class HostRates:
    """The host's part of `Measured`."""

    project: Line
    memory: Line


def rates_here(
    backing: Backing, heads: Heads, shared: bool, known: StoredRates | None = None, clock: Clock = time.perf_counter
) -> Measured:
    """Rates from `known`, by default this machine's file; those that are not there are measured now and stored there.

    Without X-cache, the parts of rows that are stored as X are 0. Raises CommandError, TargetError.
    """
    known = stored_rates.of_this_machine() if known is None else known
    drives = drive_rates(backing, heads, known, clock)
    if backing.xcache is None:
        return Measured(drives.attend, NOTHING, NOTHING, NOTHING, shared)
    xcache = backing.xcache
    shape = f"{heads.query_heads}, {heads.kv_heads}, {heads.head_dim}, {xcache.rows.width}, {xcache.rows.dtype}"
    family = type(next(iter(xcache.projections.modules.values()))).__name__
    key = f"X | {stored_rates.fingerprint(xcache.projections.device)} | {family} | {shape}"
    host = known.get(key, HostRates)
    if host is None:
        host = _measure_host(xcache, heads, clock)
        known.put(key, host)
    read = Line(drives.read.fixed, drives.read.each * xcache.rows.token_bytes)
    return Measured(drives.attend, read, host.project, host.memory, shared)


def _measure_host(xcache: XCache, heads: Heads, clock: Clock) -> HostRates:
    """In the thread that does it in a step."""
    works = [work for tokens in (FEW, MANY) for work in _works(xcache, heads, tokens)]

    def run(attention: MemoryAttention) -> list[float]:
        return medians([partial(work, attention) for work in works], clock, _TURNS)

    project_few, memory_few, project_many, memory_many = xcache.worker.start(run).result()
    return HostRates(
        Line.through((FEW, project_few), (MANY, project_many)), Line.through((FEW, memory_few), (MANY, memory_many))
    )


def _works(xcache: XCache, heads: Heads, tokens: int) -> tuple[Work, Work]:
    """Projecting X as it is read, and attention in memory to what is rebuilt."""
    layer = min(xcache.projections.modules)
    x = torch.randn(tokens, xcache.rows.width, generator=torch.Generator().manual_seed(1)).to(xcache.rows.dtype)
    zeros = np.zeros(heads.kv_heads, np.int64)
    row = InputSequence(DriveSequence([]), xcache)
    row.note(layer, 0, x, np.arange(tokens), (zeros, zeros))
    patterns, rebuilt = xcache.rows.encode(x), row.project(layer, x, 0)
    q = np.ones((heads.kv_heads, heads.query_heads // heads.kv_heads, heads.head_dim), np.float16)
    query = Query(cast(Any, row), layer, q, tokens, scale_bits(None, heads.head_dim))
    return (
        lambda attention: row.project(layer, xcache.rows.decode(patterns), 0),
        lambda attention: attention.attend(query, rebuilt.k, rebuilt.v),
    )
