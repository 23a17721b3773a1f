"""K and V being loaded from the drives into memory, layer by layer: layer i + 1.. are read while layer i computes.

Each drive's thread reads its heads of a layer with several KV_READs in flight. Layers are read in order, and only as
many before the layers in front of them were computed as the read buffer allows.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from collections.abc import Sequence as Several
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kvdrive import abi
from kvdrive.errors import KvdriveError
from kvdrive.kvcache.copies import Mark, copies_of, let_compute_follow
from kvdrive.kvcache.rows import store
from kvdrive.kvcache.scaling import HeadScale
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.slices import gather
from kvdrive.kvcache.sources import FromDrive, HeldRows, Piece, Source
from kvdrive.targets.queue import WorkQueue

_IN_FLIGHT = 4  # KV_READs of one drive
_EARLIEST = 0.02  # share of the time for computing again after which a load may be called late


class LateLoadError(KvdriveError):
    """What remains to be loaded takes longer than computing everything again."""


@dataclass(frozen=True)
class LoadPlan:
    """`buffer_bytes`: of layers that are loaded before the layers before them were computed; at least one layer is.

    `recompute_seconds`: what computing the same tokens again takes; None: not known, so that no load is late. `clock`
    gives seconds. `held`: a copy in memory to load from, of a batch of one row; None: from the drives. `from_memory`:
    the copy was whole before, and is not read from the drives for this load.
    """

    buffer_bytes: int = 0
    recompute_seconds: float | None = None
    clock: Callable[[], float] = time.perf_counter
    held: HeldRows | None = None
    from_memory: bool = False


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
    `from_memory`: of a copy that was whole when the load began.
    """

    bytes: int = 0
    commands: int = 0
    peak_bytes: int = 0
    seconds: float = 0.0
    late: bool = False
    from_memory: bool = False

    def before(self, other: LoadStats) -> LoadStats:
        """Of both, where `other` has read what was left to read."""
        return LoadStats(
            self.bytes + other.bytes,
            self.commands + other.commands,
            max(self.peak_bytes, other.peak_bytes),
            self.seconds + other.seconds,
            other.late,
            self.from_memory and other.from_memory,
        )


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
    """The `tokens` of `layers`, which `sequences` hold. `wait` is called from the model's thread."""

    def __init__(
        self, layers: Several[LoadedLayer], sequences: Several[Sequence], tokens: range, plan: LoadPlan
    ) -> None:
        held = plan.held
        self._sources: list[list[Source]] = [[FromDrive(one) for one in sequence.slices] for sequence in sequences]
        if held is not None:
            self._sources = [[held]]
            weakref.finalize(self, held.release).atexit = False
            held.take()
        self.tokens = tokens
        self._plan = plan
        self._lock = threading.Lock()
        self._cancelled = self._late = False
        self._commands = self._peak = 0
        self._layers = list(layers)
        self._places = {layer.index: place for place, layer in enumerate(self._layers)}
        self._started = self._waited = 0
        self._progress: dict[WorkQueue[Any], Progress] = {}
        for sources in self._sources:
            for one in sources:
                heads = one.last - one.first
                size = sum(4 * heads * len(tokens) * layer.head_dim for layer in self._layers)
                self._progress.setdefault(one.queue, Progress(0)).total += size
        self._blocked = 0.0  # seconds that the model has waited
        self._start()

    @classmethod
    def nothing(cls) -> Loading:
        """A load that has nothing to do."""
        return cls([], [], range(0), LoadPlan())

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

    def cancel(self, *, wait_for_reads: bool = False) -> None:
        """Read no more. Reads in flight write to unused tensors, or have ended if they are waited for."""
        self._cancelled = True
        if wait_for_reads:
            wait([future for layer in self._layers for future in layer.futures])

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
                self._plan.from_memory,
            )

    def _start(self, needed: int = 0) -> None:
        """Ask for the layers up to place `needed`, and for those behind it that fit the read buffer."""
        while self._started < len(self._layers):
            size = sum(layer.bytes(len(self.tokens)) for layer in self._layers[self._waited : self._started + 1])
            if self._started > max(needed, self._waited) and size > self._plan.buffer_bytes:
                break
            self._peak = max(self._peak, size)
            layer = self._layers[self._started]
            for row, sources in enumerate(self._sources):
                layer.futures += [one.queue.start(partial(self._read, layer, row, one)) for one in sources]
            self._started += 1

    def _left(self) -> float | None:
        """Seconds that the model may still wait, which is as long as computing again would take; None: for ever."""
        wanted = self._plan.recompute_seconds
        return None if wanted is None else max(0.0, wanted - self._blocked)

    def _read(self, layer: LoadedLayer, row: int, one: Source, target: Any) -> None:
        """In the source's thread: K and V of its heads of a layer."""
        parts = one.parts(target, layer.index, layer.head_dim, self.tokens)
        for start in range(0, len(parts), _IN_FLIGHT):
            if self._cancelled or self._late:
                return
            self._read_parts(layer, row, one, target, parts[start : start + _IN_FLIGHT])

    def _read_parts(self, layer: LoadedLayer, row: int, one: Source, target: Any, parts: list[Piece]) -> None:
        size = 0
        copies = copies_of(layer.k.device)
        began = self._plan.clock()
        for part, halves in zip(parts, one.rows(target, layer.index, layer.head_dim, parts), strict=True):
            whole = layer.k if part.kind == abi.KvKind.KEYS else layer.v
            factors = layer.scales[part.kind == abi.KvKind.VALUES].factors
            if self._cancelled:
                return
            place = whole[row, one.first : one.last, part.first : part.first + part.tokens]
            with copies.running():
                store(place, halves, factors[row, one.first : one.last])
            copies.uses(whole)
            size += halves.nbytes
        with self._lock:
            layer.marks.append(copies.mark())
            self._commands += len(parts)
            progress = self._progress[one.queue]
            progress.done += size
            progress.seconds += self._plan.clock() - began
            wanted = self._plan.recompute_seconds
            if wanted is not None and progress.seconds >= _EARLIEST * wanted and progress.remaining > wanted:
                self._late = True
