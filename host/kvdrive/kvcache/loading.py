"""K and V being loaded from the drives into memory, layer by layer: layer i + 1.. are read while layer i computes.

Each drive's thread reads its heads of a layer with several KV_READs in flight. Layers are read in order, and only as
many before the layers in front of them were computed as the read buffer allows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from collections.abc import Sequence as Several
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial

import torch

from kvdrive import abi
from kvdrive.errors import KvdriveError
from kvdrive.kvcache.copies import Mark, copies_of, let_compute_follow
from kvdrive.kvcache.rows import store
from kvdrive.kvcache.scaling import HeadScale
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.slices import Slice, gather
from kvdrive.nvme.commands import kv_read, stored_rows
from kvdrive.nvme.rows import bytes_of_row, tokens_per_group
from kvdrive.targets.base import Target
from kvdrive.targets.queue import DriveQueue

_COMMAND_BYTES = 1 << 20  # of one KV_READ, at most
_IN_FLIGHT = 4  # KV_READs of one drive
_EARLIEST = 0.02  # share of the time for computing again after which a load may be called late


class LateLoadError(KvdriveError):
    """What remains to be loaded takes longer than computing everything again."""


@dataclass(frozen=True)
class LoadPlan:
    """`buffer_bytes`: of layers that are loaded before the layers before them were computed; at least one layer is.

    `recompute_seconds`: what computing the same tokens again takes; None: not known, so that no load is late. `clock`
    gives seconds.
    """

    buffer_bytes: int = 0
    recompute_seconds: float | None = None
    clock: Callable[[], float] = time.perf_counter


@dataclass
class Progress:
    """What one drive has read: bytes, and the seconds that it took."""

    total: int
    done: int = 0
    seconds: float = 0.0

    @property
    def remaining(self) -> float:
        """Seconds for what is left, at the rate so far."""
        return self.seconds * (self.total / self.done - 1) if self.done else 0.0


@dataclass(frozen=True)
class LoadStats:
    """`bytes` of K and V read, by so many KV_READs. `peak_bytes`: the most that was read or asked for before
    the model needed it. `seconds`: the longest time that a drive has spent reading. `late`: it was given up.
    """

    bytes: int = 0
    commands: int = 0
    peak_bytes: int = 0
    seconds: float = 0.0
    late: bool = False


@dataclass
class LoadedLayer:
    """Room in memory for one layer, k and v [batch, heads, at least the tokens, d], and what of it is being loaded.

    `scales`: of K and of V. `marks`: what the device has to pass before it computes with them.
    """

    index: int
    k: torch.Tensor
    v: torch.Tensor
    scales: tuple[HeadScale, HeadScale]
    futures: list[Future[None]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def __post_init__(self) -> None:
        copies_of(self.k.device).follow()  # their memory may have been another tensor's

    @property
    def head_dim(self) -> int:
        """Of K and V."""
        return int(self.k.shape[3])

    def bytes(self, tokens: int) -> int:
        """Of K and V of so many tokens in binary16."""
        return int(4 * self.k.shape[0] * self.k.shape[1] * tokens * self.head_dim)


class Loading:
    """The first `tokens` tokens of `layers`, which `sequences` hold. `wait` is called from the model's thread."""

    def __init__(self, layers: Several[LoadedLayer], sequences: Several[Sequence], tokens: int, plan: LoadPlan) -> None:
        self._sequences = list(sequences)
        self.tokens = tokens
        self._plan = plan
        self._lock = threading.Lock()
        self._cancelled = self._late = False
        self._commands = self._peak = 0
        self._layers = list(layers)
        self._places = {layer.index: place for place, layer in enumerate(self._layers)}
        self._started = self._waited = 0
        self._progress: dict[DriveQueue, Progress] = {}
        for sequence in self._sequences:
            for one in sequence.slices:
                heads = one.last - one.first
                size = sum(4 * heads * tokens * layer.head_dim for layer in self._layers)
                self._progress.setdefault(one.queue, Progress(0)).total += size
        self._blocked = 0.0  # seconds that the model has waited
        self._start()

    @classmethod
    def nothing(cls) -> Loading:
        """A load that has nothing to do."""
        return cls([], [], 0, LoadPlan())

    def wait(self, index: int) -> None:
        """Return when layer `index` is in memory, or on its way there in front of what the device computes from now on;
        the layers behind it are read on.

        Raises LateLoadError, and the error of a drive that failed.
        """
        place = self._places.get(index)
        if place is None or place < self._waited:
            return
        layer = self._layers[place]
        self._start(place)
        began, left = self._plan.clock(), self._left()
        _, unfinished = wait(layer.futures, timeout=left)
        self._blocked += self._plan.clock() - began
        if self._late or unfinished:
            self._late = True
            raise LateLoadError("the drive is slower than computing the tokens again")
        gather(layer.futures)
        layer.futures.clear()
        for mark in layer.marks:
            let_compute_follow(mark, layer.k.device)
        layer.marks.clear()
        self._waited = place + 1
        self._start()

    @property
    def done(self) -> bool:
        """True if all layers, at least one, are in memory."""
        return 0 < len(self._layers) == self._waited

    def finish(self) -> None:
        """Wait for all layers. Raises as `wait` does."""
        for layer in self._layers:
            self.wait(layer.index)

    def cancel(self) -> None:
        """Read no more. Reads in flight write to unused tensors."""
        self._cancelled = True

    def stats(self) -> LoadStats:
        """What was read so far."""
        with self._lock:
            parts = self._progress.values()
            return LoadStats(
                sum(part.done for part in parts),
                self._commands,
                self._peak,
                max((part.seconds for part in parts), default=0.0),
                self._late,
            )

    def _start(self, needed: int = 0) -> None:
        """Ask for the layers up to place `needed`, and for those behind it that fit the read buffer."""
        while self._started < len(self._layers):
            size = sum(layer.bytes(self.tokens) for layer in self._layers[self._waited : self._started + 1])
            if self._started > max(needed, self._waited) and size > self._plan.buffer_bytes:
                break
            self._peak = max(self._peak, size)
            layer = self._layers[self._started]
            for row, sequence in enumerate(self._sequences):
                layer.futures += [one.queue.start(partial(self._read, layer, row, one)) for one in sequence.slices]
            self._started += 1

    def _left(self) -> float | None:
        """Seconds that the model may still wait, which is as long as computing again would take; None: for ever."""
        wanted = self._plan.recompute_seconds
        return None if wanted is None else max(0.0, wanted - self._blocked)

    def _read(self, layer: LoadedLayer, row: int, one: Slice, target: Target) -> None:
        """In the drive's thread: K and V of one slice of a layer."""
        heads = one.last - one.first
        per_token = heads * bytes_of_row(one.session.stored_as(layer.index), layer.head_dim)
        group = tokens_per_group(one.session.stored_as(layer.index), layer.head_dim)
        fit = max(1, min(_COMMAND_BYTES, target.max_transfer_bytes) // per_token)
        at_once = fit // group * group or fit
        parts = [
            (kind, first, min(at_once, self.tokens - first))
            for first in range(0, self.tokens, at_once)
            for kind in abi.KvKind
        ]
        for start in range(0, len(parts), _IN_FLIGHT):
            if self._cancelled or self._late:
                return
            self._read_parts(layer, row, one, target, parts[start : start + _IN_FLIGHT])

    def _read_parts(
        self, layer: LoadedLayer, row: int, one: Slice, target: Target, parts: list[tuple[abi.KvKind, int, int]]
    ) -> None:
        heads, size = one.last - one.first, 0
        stored_as = one.session.stored_as(layer.index)
        copies = copies_of(layer.k.device)
        began = self._plan.clock()
        commands = [
            kv_read(one.session.number, layer.index, 0, kind, first, (heads, tokens, layer.head_dim), stored_as)
            for kind, first, tokens in parts
        ]
        for (kind, first, tokens), done in zip(parts, target.submit_many(commands), strict=True):
            halves = stored_rows(done.check(abi.Opcode.KV_READ), (heads, tokens, layer.head_dim), stored_as)
            whole = layer.k if kind == abi.KvKind.KEYS else layer.v
            factors = layer.scales[kind == abi.KvKind.VALUES].factors
            if self._cancelled:
                return
            place = whole[row, one.first : one.last, first : first + tokens]
            with copies.running():
                store(place, halves, factors[row, one.first : one.last])
            copies.uses(whole)
            size += halves.nbytes
        with self._lock:
            layer.marks.append(copies.mark())
            self._commands += len(commands)
            progress = self._progress[one.queue]
            progress.done += size
            progress.seconds += self._plan.clock() - began
            wanted = self._plan.recompute_seconds
            if wanted is not None and progress.seconds >= _EARLIEST * wanted and progress.remaining > wanted:
                self._late = True
