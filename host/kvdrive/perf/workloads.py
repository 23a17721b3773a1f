"""Workloads whose device time `kvdrive drive trace` shows: commands through several queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from kvdrive import abi
from kvdrive._native import Drive, QueuePairs, RingError, Subsystem
from kvdrive.errors import InputError, TargetError
from kvdrive.kernels.native import scale_bits
from kvdrive.nvme import commands
from kvdrive.nvme.commands import Command, Halves
from kvdrive.nvme.completions import Completion, decode

_SEGMENT_BYTES = 1 << 32  # reserved address space; memory is allocated when it is used
_SEED = 1
_SESSION = 1


class Workload(StrEnum):
    """The workload that is traced on a new drive: storing K and V, or a decode step over them."""

    prefill = "prefill"
    exact = "exact"
    sparf = "sparf"


@dataclass(frozen=True)
class Shape:
    """Size of a workload: K and V of `tokens` tokens in `layers` x `heads`; `group` queries per head; 1/`ratio` of the
    embedding rows and tokens for SparF."""

    layers: int = 2
    heads: int = 8
    head_dim: int = 128
    tokens: int = 4096
    group: int = 4
    ratio: int = 8

    @property
    def kv_bytes(self) -> int:
        """K and V in bytes."""
        return 4 * self.layers * self.heads * self.head_dim * self.tokens


class QueuedDrive:
    """Sends commands to `drive` through `queues` I/O queues: layer l uses queue 1 + l % queues. Raises TargetError."""

    def __init__(self, drive: Drive, queues: int) -> None:
        self.drive = drive
        self.commands = 0
        self._queues = queues
        try:
            self._pairs = QueuePairs(Subsystem(drive), _SEGMENT_BYTES, io_queues=queues)
        except RuntimeError as error:
            raise TargetError(str(error)) from error

    def send(self, layer: int, command: Command) -> Completion:
        """Execute a command. Raises CommandError, TargetError."""
        try:
            reply = self._pairs.execute(1 + layer % self._queues, command.entry, command.data, command.room)
        except RingError as error:
            raise TargetError(str(error)) from error
        self.commands += 1
        return decode(*reply).check(command.opcode)

    def attend(self, session: int, layer: int, head: int, q: Halves, tokens: int, r: int = 0, k_top: int = 0) -> None:
        """Queries [heads, g, d] and their result; SparF where `r` is given."""
        heads, group, head_dim = q.shape
        mode = abi.Mode.SPARF_ATTEND if r else abi.Mode.EXACT
        submit = commands.attn_submit(
            session, layer, head, q, tokens, scale_bits(None, head_dim), mode=mode, r=r, k_top=k_top
        )
        ticket = self.send(layer, submit).result
        self.send(layer, commands.attn_fetch(ticket, heads, group, head_dim, mode))


def play(drive: QueuedDrive, workload: Workload, shape: Shape, events: int) -> Iterator[None]:
    """Run a workload on an empty drive, which keeps `events` of its timeline. Yields once for each of `steps`."""
    prefill = workload is Workload.prefill
    if prefill:
        drive.drive.keep_trace(events)
    rng = np.random.default_rng(_SEED)
    options = abi.AppendOption.APPEND_SPARSE if workload is Workload.sparf else 0
    sequence = 0
    for layer in range(shape.layers):
        for kind in abi.KvKind:
            rows = _halves(rng, shape.heads, shape.tokens, shape.head_dim)
            for first in range(0, shape.tokens, commands.MAX_TOKENS_PER_APPEND):
                part = rows[:, first : first + commands.MAX_TOKENS_PER_APPEND]
                drive.send(layer, commands.kv_append(_SESSION, layer, 0, kind, first, sequence, part, options))
                sequence += 1
        yield
    drive.send(0, commands.flush())
    if prefill:
        return
    drive.drive.keep_trace(events)
    sparf = workload is Workload.sparf
    r = max(shape.head_dim // shape.ratio, 1) if sparf else 0
    k_top = min(max(shape.tokens // shape.ratio, 1), abi.MAX_TOP_K) if sparf else 0
    for layer in range(shape.layers):
        q = _halves(rng, shape.heads, shape.group, shape.head_dim)
        drive.attend(_SESSION, layer, 0, q, shape.tokens, r, k_top)
        yield


def steps(workload: Workload, shape: Shape) -> int:
    """How often `play` yields."""
    return shape.layers * (1 if workload is Workload.prefill else 2)


@dataclass(frozen=True)
class Query:
    """Heads `head` to `head` + `heads` - 1 of a layer, with as many tokens each."""

    session: int
    layer: int
    head: int
    heads: int
    head_dim: int
    tokens: int

    def goes_on_with(self, session: int, layer: int, head: int, head_dim: int, tokens: int) -> bool:
        """True if the same command can also query this head."""
        return self == Query(session, layer, head - self.heads, self.heads, head_dim, tokens)


def stored_queries(drive: Drive) -> list[Query]:
    """The queries of a decode step over all sessions of a drive. Consecutive heads share a query.

    Raises InputError for an empty drive.
    """
    queries: list[Query] = []
    for session in drive.sessions():
        both: dict[tuple[int, int], list[dict[str, int]]] = {}
        for entry in drive.heads(session):
            both.setdefault((entry["layer"], entry["head"]), []).append(entry)
        for (layer, head), entries in both.items():
            tokens, head_dim = min(entry["tokens"] for entry in entries), entries[0]["row_bytes"] // 2
            if len(entries) != len(abi.KvKind) or tokens == 0:
                continue
            if queries and queries[-1].goes_on_with(session, layer, head, head_dim, tokens):
                queries[-1] = replace(queries[-1], heads=queries[-1].heads + 1)
            else:
                queries.append(Query(session, layer, head, 1, head_dim, tokens))
    if not queries:
        raise InputError("the drive holds no K and V: use one with a session, or a workload in place of a drive")
    return queries


def replay(drive: QueuedDrive, queries: list[Query], events: int) -> Iterator[None]:
    """Run the queries, with one query head per KV head, on a drive whose contents stay. Yields after each."""
    rng = np.random.default_rng(_SEED)
    drive.drive.keep_trace(events)
    for query in queries:
        q = _halves(rng, query.heads, 1, query.head_dim)
        drive.attend(query.session, query.layer, query.head, q, query.tokens)
        yield


def _halves(rng: np.random.Generator, *shape: int) -> Halves:
    return rng.standard_normal(shape, np.float32).astype(np.float16)
