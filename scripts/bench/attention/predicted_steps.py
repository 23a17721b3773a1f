"""Decode steps that `predicted.py` predicts and measures: settings, stored sessions, and the line between two."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from bench.attention.states import IN_RUNS, SEED, Shape, made_up
from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache import formats
from kvdrive.kvcache.session import Session
from kvdrive.nvme import commands
from kvdrive.nvme.rows import joined
from kvdrive.policies import make_policy
from kvdrive.policies.drive import DrivePolicy
from kvdrive.policies.parameters import EVERYTHING, Parameters
from kvdrive.targets.base import Target
from kvdrive.targets.emulator import Emulator

KNOWN = (4096, 32768)  # contexts whose times predict the others
RATIO = Fraction(1, 8)  # of policies that do not read everything
QUERIES = 4  # of a step on a flash model: where the chosen tokens are depends on the query
_EVENTS = 1 << 18  # of a drive's timeline, more than a layer has
# The work of channels and dies in a timeline.
_FLASH_WORK = re.compile(r'"name":"(?:sense|transfer)","pid":([12]),"tid":(\d+),"ts":[\d.]+,"dur":([\d.]+)')


@dataclass(frozen=True)
class Setting:
    """What is predicted. `place`: where K and V are; `data`: which made-up ones; `kv_format`: how they are stored."""

    target: str
    place: str
    policy: str
    group: int
    tokens: int
    data: str = IN_RUNS
    kv_format: str = "f16"

    @property
    def append_options(self) -> int:
        """How its session is stored. Exact attention to binary16 reads the sessions of SparF."""
        if self.kv_format != "f16":
            return joined(0, formats.named(self.kv_format))
        return int(abi.AppendOption.APPEND_GROUPS if self.policy == "groups" else abi.AppendOption.APPEND_SPARSE)

    def parameters(self, head_dim: int) -> Parameters:
        """The parameters of a query."""
        if self.policy == "exact":
            return EVERYTHING
        policy = make_policy(self.policy, RATIO)
        assert isinstance(policy, DrivePolicy)
        return policy.parameters(self.tokens, head_dim)


@dataclass(frozen=True)
class Outcome:
    """Seconds of a step."""

    setting: Setting
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Timed:
    """A step: its size, as the drive counts it (bytes read, or work of the busiest die or channel), and seconds."""

    size: float
    seconds: float


class Stored:
    """The sessions that `settings` need on a drive, with the same made-up K and V in all layers."""

    def __init__(self, target: Target, shape: Shape, data: str, settings: Iterable[Setting]) -> None:
        self.shape, self.states = shape, made_up(shape, data)
        self.sessions: dict[tuple[int, int], int] = {}
        for options, tokens in sorted({(one.append_options, one.tokens) for one in settings}):
            session = Session(target, options)
            for layer in range(shape.layers):
                session.append(layer, abi.KvKind.KEYS, 0, self.states.k[layer][:, :tokens])
                session.append(layer, abi.KvKind.VALUES, 0, self.states.v[layer][:, :tokens])
            self.sessions[options, tokens] = session.number
        target.execute(commands.flush())

    def step(self, target: Target, setting: Setting, clock: Callable[[], float] = time.perf_counter) -> Timed:
        """The attention of a decode step; by `clock`."""
        options, head_dim = setting.append_options, self.shape.head_dim
        session = Session.existing(target, self.sessions[options, setting.tokens], options)
        parameters, scale = setting.parameters(head_dim), scale_bits(None, head_dim)
        before, start = target.stats().kv_bytes_read, clock()
        for layer in range(self.shape.layers):
            queries = np.ascontiguousarray(self.states.q[layer, :, : setting.group])
            session.attend(layer, queries, setting.tokens, scale, parameters)
        seconds = clock() - start
        return Timed(target.stats().kv_bytes_read - before, seconds)

    def on_flash(self, target: Emulator, setting: Setting) -> Timed:
        """The device time of a step that reads some tokens, and microseconds of the busiest die or channel.

        Both are means over QUERIES queries. The chosen tokens do not lie on all dies alike, and a layer takes as
        long as the die, or the channel, with most of them.
        """
        options, head_dim = setting.append_options, self.shape.head_dim
        session = Session.existing(target, self.sessions[options, setting.tokens], options)
        parameters, scale = setting.parameters(head_dim), scale_bits(None, head_dim)
        size = (QUERIES, self.shape.layers, self.shape.kv_heads, setting.group, head_dim)
        queries = np.random.default_rng(SEED + 1).standard_normal(size).astype(np.float16)
        began, work = target.device_ns(), 0.0
        for query in queries:
            for layer in range(self.shape.layers):
                target.keep_trace(_EVENTS)
                session.attend(layer, query[layer], setting.tokens, scale, parameters)
                work += busiest(target.trace())
        target.keep_trace(0)
        return Timed(work / QUERIES, (target.device_ns() - began) / 1e9 / QUERIES)


def busiest(timeline: str) -> float:
    """Microseconds that the busiest die senses or the busiest channel transfers, whichever is more."""
    work: defaultdict[tuple[str, str], float] = defaultdict(float)
    for kind, number, microseconds in _FLASH_WORK.findall(timeline):
        work[kind, number] += float(microseconds)
    return max(work.values())


def line(known: Sequence[Timed]) -> Callable[[float], float]:
    """Seconds by what is read: a fixed time and a rate through two measured points."""
    few, many = known
    each = (many.seconds - few.seconds) / (many.size - few.size)
    return lambda size: few.seconds + (size - few.size) * each


def from_known(times: Mapping[Setting, Timed], known: tuple[int, int] = KNOWN) -> list[Outcome]:
    """Outcomes at all contexts but those that are `known`, from lines through those."""
    outcomes = []
    for setting, timed in times.items():
        if setting.tokens not in known:
            points = [times[replace(setting, tokens=tokens)] for tokens in known]
            outcomes.append(Outcome(setting, line(points)(timed.size), timed.seconds))
    return outcomes
