"""The clock and the counters of one generation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from transformers import PreTrainedModel

from kvdrive.identity.content import only_looks
from kvdrive.report.watched import watch
from kvdrive.targets.group import DriveGroup

KEPT_EVENTS = 100_000  # each drive's timeline keeps this many of its latest events: about 12 MB of JSON


@dataclass(frozen=True)
class Mark:
    """Wall seconds since the start, the drives' counters, and their modelled device time in ns (None: not modelled)."""

    seconds: float
    counters: dict[str, int]
    device_ns: int | None


@dataclass(frozen=True)
class LayerSpan:
    """Wall seconds since the start between which a layer computed in `step`, for a mini-batch of the batch."""

    step: int
    layer: int
    begin: float
    end: float
    mini_batch: int = 0


class Recorder:
    """Marks the drives' counters after every step; mark 0 is the state before the first one.

    Use the recorder's own `drives`: they note every command in `commands`. `start`: reading of time.perf_counter.
    """

    def __init__(self, drives: DriveGroup) -> None:
        self.drives, self.commands = watch(drives)
        self.start = 0.0
        self.origins: list[int] = []  # ns at the start on the clock of each drive's timeline
        self.traces: list[str] = []  # Target.trace at the end, for each drive; that of a disk for its first drive only
        self.transfers: dict[str, dict[str, dict[str, int]]] = {}  # Target.transfers of all drives at the end
        self.layers: list[LayerSpan] = []
        self.marks: list[Mark] = []

    def begin(self) -> None:
        """Start the clock. Call it after the model is attached: attaching reads all weights."""
        for drive in self.drives.drives:
            drive.keep_trace(KEPT_EVENTS)
        self.start = time.perf_counter()
        device = [drive.device_ns() for drive in self.drives.drives]
        self.origins = [int(self.start * 1e9) if ns is None else ns for ns in device]
        self.marks = [self._now()]

    def step(self) -> None:
        """A step has ended."""
        self.marks.append(self._now())

    def end(self) -> None:
        """Fetch the timelines of the drives, and what they count, while they are open."""
        for drive in self.drives.drives:
            disks = drive.transfers()
            known = bool(disks) and disks.keys() <= self.transfers.keys()
            self.traces.append('{"traceEvents": []}' if known else drive.trace())
            self.transfers |= disks

    @property
    def steps(self) -> list[dict[str, Any]]:
        """For each step its wall seconds, its modelled device ns and how far every counter went."""
        return [
            {
                "seconds": after.seconds - before.seconds,
                "device_ns": None if after.device_ns is None else after.device_ns - (before.device_ns or 0),
                **{name: value - before.counters[name] for name, value in after.counters.items()},
            }
            for before, after in pairwise(self.marks)
        ]

    @contextmanager
    def watch_layers(self, model: PreTrainedModel, on_layer: Callable[[int], None]) -> Iterator[None]:
        """Records when each decoder layer computes and reports each layer that ended (counted from 1)."""
        began: dict[tuple[int, int], float] = {}
        threads: dict[int, int] = {}  # their mini-batches; the first one is in the thread of the prefill

        def mini_batch() -> int:
            return threads.setdefault(threading.get_ident(), len(threads))

        def before(index: int) -> Callable[..., None]:
            return lambda *_: began.__setitem__((mini_batch(), index), self._elapsed())

        def after(index: int) -> Callable[..., None]:
            def hook(*_: object) -> None:
                number = mini_batch()
                step, begin = len(self.marks) - 1, began[number, index]
                self.layers.append(LayerSpan(step, index, begin, self._elapsed(), number))
                on_layer(index + 1)

            return hook

        decoder = model.get_decoder()
        layers = getattr(decoder, "layers", None) or decoder.h  # GPT-2's family
        hooks = [layer.register_forward_pre_hook(only_looks(before(index))) for index, layer in enumerate(layers)]
        hooks += [layer.register_forward_hook(only_looks(after(index))) for index, layer in enumerate(layers)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _elapsed(self) -> float:
        return time.perf_counter() - self.start

    def _now(self) -> Mark:
        stats = self.drives.stats()
        counters = asdict(stats) | {"host_bytes": stats.host_bytes, "inside_bytes": stats.kv_bytes_read}
        return Mark(self._elapsed(), counters, self.drives.device_ns())
