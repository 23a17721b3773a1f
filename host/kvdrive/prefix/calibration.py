"""Measures what a model and its drives take, in about a second: `resume` chooses by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kvdrive import abi
from kvdrive.kvcache.backing import Backing, drop
from kvdrive.kvcache.drive_rates import Clock, Heads, best, drive_rates, stored, token_bytes
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.session import Session
from kvdrive.plugins.host_attention import attend_on_host
from kvdrive.prefix.rates import Rates

_TOKENS = 2048  # of the sequence that is written, read and attended to for the measurement
_FEW = 16
_READS = 6  # of single rows, when a session is compared with its index entry
_QUERIES = 64
LONGEST = 512  # tokens of a prefill
_ENOUGH = 0.2  # seconds: a prefill that takes as long is measured well enough


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
    clock: Clock = time.perf_counter,
) -> Rates:
    """The rates of a model whose own `forward` computes tensors `like` this one. Raises CommandError, TargetError."""
    token, step = _model(forward, min(LONGEST, shape.positions), like.device, clock)
    pair, step_pair = _attention(shape, like, clock)
    return Rates(token, pair, step, step_pair, *_drives(shape, backing, clock))


def _model(forward: Callable[..., Any], longest: int, device: torch.device, clock: Clock) -> tuple[float, float]:
    """Seconds of a token of a prefill, and of one token by itself."""

    def once(tokens: int) -> float:
        ids = torch.ones(1, tokens, dtype=torch.int64, device=device)
        return best(partial(forward, input_ids=ids, use_cache=False, logits_to_keep=1), clock, 2)

    with torch.no_grad():
        step, tokens = once(1), min(32, longest)
        while (seconds := once(tokens)) < _ENOUGH and 2 * tokens <= longest:
            tokens *= 2
    return seconds / tokens, step


def _attention(shape: Shape, like: torch.Tensor, clock: Clock) -> tuple[float, float]:
    """Seconds of all layers' attention in memory, for each pair of tokens: in a prefill, and of one token by itself."""
    module = torch.nn.Module()
    module.num_key_value_groups = shape.heads // shape.kv_heads
    module.is_causal = True
    k = like.new_ones(1, shape.kv_heads, _TOKENS, shape.head_dim)

    def once(queries: int) -> float:
        q = like.new_ones(1, shape.heads, queries, shape.head_dim)
        mask = torch.ones(1, 1, queries, _TOKENS, dtype=torch.bool, device=like.device)
        ask = partial(attend_on_host, module, q, k, k, mask if queries > 1 else None)
        return best(ask, clock) * shape.layers / (queries * _TOKENS)

    with torch.no_grad():
        return once(_QUERIES), once(1)


def _drives(shape: Shape, backing: Backing, clock: Clock) -> tuple[float, float, float, float, float]:
    """Seconds of a byte and of a command of KV_READ, of opening a session, of a token and of a pair of attention."""
    heads = Heads(shape.heads, shape.kv_heads, shape.head_dim)
    rates, row = drive_rates(backing, heads), token_bytes(backing, heads)

    def use(sequence: DriveSequence) -> None:
        def compare(session: Session) -> None:
            session.label()
            for _ in range(_READS):
                session.read(0, abi.KvKind.KEYS, 0, (1, 1, shape.head_dim))

        forked = sequence.fork(_TOKENS)
        forked.each(compare)
        drop([forked])

    with stored(backing, heads, _TOKENS) as sequence:
        opened = best(partial(use, sequence), clock)
    # fixed costs count twice, in few and in many: estimates err on the side of computing in memory
    byte = rates.read.at(row * _TOKENS) / (row * _TOKENS)
    few, many = rates.attend.at(_FEW), rates.attend.at(_TOKENS)
    return (
        byte,
        2 * rates.read.at(row * _FEW),  # K and V
        opened,
        few * shape.layers,
        many * shape.layers / _TOKENS,
    )
