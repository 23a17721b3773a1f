"""Measures what a model and its drives take, in about a second: `resume` chooses by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.backing import Backing, drop
from kvdrive.kvcache.sequence import Sequence, Slice, gather
from kvdrive.kvcache.session import Query, Session, attend
from kvdrive.nvme.commands import flush
from kvdrive.plugins.host_attention import attend_on_host
from kvdrive.sessions.resume import Rates
from kvdrive.targets.base import Target
from kvdrive.targets.group import split

_TOKENS = 2048  # of the sequence that is written, read and attended to for the measurement
_FEW = 16
_READS = 6  # of single rows, when a session is compared with its index entry
_QUERIES = 64
LONGEST = 512  # tokens of a prefill
_ENOUGH = 0.2  # seconds: a prefill that takes as long is measured well enough
_ROUNDS = 3


@dataclass(frozen=True)
class Shape:
    """What K and V depend on. `heads`: query heads."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    positions: int


def measure(
    forward: Callable[..., Any],
    shape: Shape,
    like: torch.Tensor,
    backing: Backing,
    clock: Callable[[], float] = time.perf_counter,
) -> Rates:
    """The rates of a model whose own `forward` computes tensors `like` this one. Raises CommandError, TargetError."""
    token, step = _model(forward, min(LONGEST, shape.positions), like.device, clock)
    pair, step_pair = _attention(shape, like, clock)
    return Rates(token, pair, step, step_pair, *_drives(shape, backing, clock))


def _model(
    forward: Callable[..., Any], longest: int, device: torch.device, clock: Callable[[], float]
) -> tuple[float, float]:
    """Seconds of a token of a prefill, and of one token by itself."""

    def once(tokens: int) -> float:
        ids = torch.ones(1, tokens, dtype=torch.int64, device=device)
        return _best(partial(forward, input_ids=ids, use_cache=False, logits_to_keep=1), clock, 2)

    with torch.no_grad():
        step, tokens = once(1), min(32, longest)
        while (seconds := once(tokens)) < _ENOUGH and 2 * tokens <= longest:
            tokens *= 2
    return seconds / tokens, step


def _attention(shape: Shape, like: torch.Tensor, clock: Callable[[], float]) -> tuple[float, float]:
    """Seconds of all layers' attention in memory, for each pair of tokens: in a prefill, and of one token by itself."""
    module = torch.nn.Module()
    module.num_key_value_groups = shape.heads // shape.kv_heads
    module.is_causal = True
    k = like.new_ones(1, shape.kv_heads, _TOKENS, shape.head_dim)

    def once(queries: int) -> float:
        q = like.new_ones(1, shape.heads, queries, shape.head_dim)
        mask = torch.ones(1, 1, queries, _TOKENS, dtype=torch.bool, device=like.device)
        ask = partial(attend_on_host, module, q, k, k, mask if queries > 1 else None)
        return _best(ask, clock) * shape.layers / (queries * _TOKENS)

    with torch.no_grad():
        return once(_QUERIES), once(1)


def _drives(shape: Shape, backing: Backing, clock: Callable[[], float]) -> tuple[float, float, float, float, float]:
    """Seconds of a byte and of a command of KV_READ, of opening a session, of a token and of a pair of attention."""
    rows = np.random.default_rng(1).standard_normal((shape.kv_heads, _TOKENS, shape.head_dim)).astype(np.float16)
    sequence = Sequence.open(backing.alive, split(1, shape.kv_heads, len(backing.alive))[0], 0, backing.label)
    try:
        sequence.append(0, 0, rows, rows, lambda seconds: None).wait()
        gather([one.queue.start(_flush) for one in sequence])

        def read(tokens: int) -> float:
            def work(one: Slice, target: Target) -> None:
                for kind in abi.KvKind:
                    one.session.read(0, kind, 0, (one.last - one.first, tokens, shape.head_dim))

            return _best(partial(_everywhere, sequence, work), clock)

        def ask(tokens: int) -> float:
            def work(one: Slice, target: Target) -> None:
                q = np.ones((one.last - one.first, shape.heads // shape.kv_heads, shape.head_dim), np.float16)
                attend(target, [Query(one.session, 0, q, tokens, scale_bits(shape.head_dim**-0.5, shape.head_dim))])

            return _best(partial(_everywhere, sequence, work), clock) * shape.layers

        def use() -> None:
            def compare(session: Session) -> None:
                session.label()
                for _ in range(_READS):
                    session.read(0, abi.KvKind.KEYS, 0, (1, 1, shape.head_dim))

            forked = sequence.fork(_TOKENS)
            forked.each(compare)
            drop([forked])

        opened = _best(use, clock)
        few, many = read(_FEW), read(_TOKENS)
        asked_few, asked_many = ask(_FEW), ask(_TOKENS)
    finally:
        drop([sequence])
    size = 4 * shape.kv_heads * shape.head_dim
    # fixed costs count twice, in few and in many: estimates err on the side of computing in memory
    return many / (size * _TOKENS), few, opened, asked_few, asked_many / _TOKENS


def _everywhere(sequence: Sequence, work: Callable[[Slice, Target], None]) -> None:
    gather([one.queue.start(partial(work, one)) for one in sequence])


def _flush(target: Target) -> None:
    target.execute(flush())


def _best(work: Callable[[], object], clock: Callable[[], float], rounds: int = _ROUNDS) -> float:
    """The shortest time of some rounds."""
    found = []
    for _ in range(rounds):
        began = clock()
        work()
        found.append(clock() - began)
    return min(found)
