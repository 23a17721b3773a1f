"""What drives take for attention and for reading rows back: measured once, stored, used by all that choose by it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.backing import Backing, drop
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.formats import name_of
from kvdrive.kvcache.session import Query, attend
from kvdrive.kvcache.slices import Slice, gather
from kvdrive.nvme.rows import bytes_of_row, joined
from kvdrive.perf import stored_rates
from kvdrive.perf.stored_rates import StoredRates
from kvdrive.targets.base import Target
from kvdrive.targets.group import split

FEW, MANY = 256, 4096  # tokens that are measured
_ROUNDS = 5
_TURNS = 21  # rounds of work that takes turns
Clock = Callable[[], float]


@dataclass(frozen=True)
class Line:
    """Seconds: `fixed`, and more for each unit of size (`each`), which is a token or a byte."""

    fixed: float
    each: float

    @classmethod
    def through(cls, few: tuple[int, float], many: tuple[int, float]) -> Line:
        """The line through two measurements: sizes and seconds."""
        each = max(many[1] - few[1], 0.0) / (many[0] - few[0])
        return cls(max(few[1] - each * few[0], 0.0), each)

    def at(self, size: int) -> float:
        """Seconds for a size."""
        return self.fixed + self.each * size


@dataclass(frozen=True)
class Heads:
    """Shape of a layer's attention."""

    query_heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class DriveRates:
    """One sequence and layer on all drives together. `attend`: one token's attention, by the tokens that it sees.
    `read`: one KV_READ to each drive, by bytes as they are stored."""

    attend: Line
    read: Line


def drive_rates(
    backing: Backing, heads: Heads, known: StoredRates | None = None, clock: Clock = time.perf_counter
) -> DriveRates:
    """The rates of the drives of `backing`, from `known` or measured now and stored there. Raises CommandError,
    TargetError.

    `known`: by default this machine's file.
    """
    known = stored_rates.of_this_machine() if known is None else known
    speeds = ", ".join(queue.target.speed for queue in backing.alive)
    shape = f"{heads.query_heads}, {heads.kv_heads}, {heads.head_dim}, {name_of(backing.stored_as)}"
    key = f"drives | {stored_rates.fingerprint()} | {speeds} | {shape}"
    found = known.get(key, DriveRates)
    if found is None:
        found = _measure(backing, heads, clock)
        known.put(key, found)
    return found


def _measure(backing: Backing, heads: Heads, clock: Clock) -> DriveRates:
    group, scale = heads.query_heads // heads.kv_heads, scale_bits(heads.head_dim**-0.5, heads.head_dim)

    def ask(tokens: int, one: Slice, target: Target) -> None:
        q = np.ones((one.last - one.first, group, heads.head_dim), np.float16)
        attend(target, [Query(one.session, 0, q, tokens, scale)])

    def read(tokens: int, one: Slice, target: Target) -> None:
        one.session.read(0, abi.KvKind.KEYS, 0, (one.last - one.first, tokens, heads.head_dim))

    with stored(backing, heads, MANY) as sequence:
        works = [partial(everywhere, sequence, partial(work, tokens)) for work in (ask, read) for tokens in (FEW, MANY)]
        asked_few, asked_many, read_few, read_many = medians(works, clock, _TURNS)
    row = token_bytes(backing, heads)
    return DriveRates(
        Line.through((FEW, asked_few), (MANY, asked_many)),
        Line.through((row * FEW, read_few), (row * MANY, read_many)),
    )


def token_bytes(backing: Backing, heads: Heads) -> int:
    """Bytes of a token's K in one layer, as the drives of `backing` store it."""
    return heads.kv_heads * bytes_of_row(backing.stored_as, heads.head_dim)


@contextmanager
def stored(backing: Backing, heads: Heads, tokens: int) -> Iterator[DriveSequence]:
    """A sequence whose layer 0 has so many tokens of random K and V; it is removed at the end."""
    rows = np.random.default_rng(1).standard_normal((heads.kv_heads, tokens, heads.head_dim)).astype(np.float16)
    parts = split(1, heads.kv_heads, len(backing.alive))[0]
    sequence = DriveSequence.open(backing.alive, parts, joined(0, backing.stored_as), backing.label)
    try:
        sequence.append(0, 0, rows, rows, lambda seconds: None).wait()
        backing.flush()
        yield sequence
    finally:
        drop([sequence])


def everywhere(sequence: DriveSequence, work: Callable[[Slice, Target], None]) -> None:
    """Work on all slices of a sequence at once."""
    gather([one.queue.start(partial(work, one)) for one in sequence.slices])


def best(work: Callable[[], object], clock: Clock, rounds: int = _ROUNDS) -> float:
    """The shortest time of some rounds."""
    found = []
    for _ in range(rounds):
        began = clock()
        work()
        found.append(clock() - began)
    return min(found)


def medians(works: Several[Callable[[], object]], clock: Clock, rounds: int) -> list[float]:
    """The median time of each piece of work. They take turns: what disturbs the machine for a moment, or a disk that
    is fast for a moment, counts in a few of the rounds.

    A step waits for all of its layers, so that the fastest round of one would promise too much.
    """
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, found in zip(works, times, strict=True):
            began = clock()
            work()
            found.append(clock() - began)
    return [statistics.median(found) for found in times]
