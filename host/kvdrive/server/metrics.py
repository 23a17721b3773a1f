"""Prometheus metrics of one server."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kvdrive.targets.base import TargetStats

RATE_SECONDS = 10
ANSWERS = "answers by path and status"
_SEQUENCES = (1, 2, 4, 8, 16, 32, 64)
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class DriveCounters(Collector):
    """The drive's own counters, as they were after the last step."""

    def __init__(self) -> None:
        self._stats: TargetStats | None = None
        self._device_ns: int | None = None

    def update(self, stats: TargetStats, device_ns: int | None) -> None:
        """After a step."""
        self._stats, self._device_ns = stats, device_ns

    def collect(self) -> Iterator[CounterMetricFamily]:
        if self._stats is None:
            return
        stats = self._stats
        for name, text, value in (
            ("host_in_bytes", "bytes over the host interface, to the drive", stats.host_bytes_in),
            ("host_out_bytes", "bytes over the host interface, from the drive", stats.host_bytes_out),
            ("read_inside_bytes", "bytes of K and V read inside the drive", stats.kv_bytes_read),
            ("attention_jobs", "attention jobs that the drive computed", stats.attention_jobs),
            ("failed_commands", "commands that failed", stats.failed_commands),
        ):
            yield CounterMetricFamily(f"kvdrive_drive_{name}", text, value)
        if self._device_ns is not None:
            yield CounterMetricFamily("kvdrive_drive_modelled_seconds", "device time, modelled", self._device_ns / 1e9)


_SESSIONS = {  # what `store_figures` calls it: counter or not, text
    "lookups": (True, "prompts that were looked up"),
    "hits": (True, "prompts whose first tokens were found on the drive"),
    "hit_tokens": (True, "tokens found"),
    "saves": (True, "saves of running and finished sequences"),
    "failed_saves": (True, "saves that failed"),
    "evictions": (True, "sessions that the bounds removed"),
    "stale": (True, "sessions that were not what the index said"),
    "lost": (True, "sessions of which the drive lost data"),
    "loads": (True, "requests whose history was loaded into memory"),
    "attends": (True, "requests whose history the drive attends to"),
    "recomputes": (True, "requests whose history was computed again because that was faster"),
    "late_loads": (True, "loads that were given up for computing again"),
    "loaded_bytes": (True, "bytes of K and V loaded into memory"),
    "memory_hits": (True, "of the loads, those from a copy in memory"),
    "memory_loaded_bytes": (True, "of the bytes loaded, those from copies in memory"),
    "memory_fetches": (True, "sessions that were brought from the drive to memory before their turn"),
    "memory_evictions": (True, "copies that left memory for others"),
    "memory": (False, "sessions of which memory has a copy"),
    "memory_bytes": (False, "bytes that these copies count for"),
    "bytes_written": (True, "bytes of K and V written for stored sessions, by all processes so far"),
    "refused": (True, "sequences that the governor of writes refused"),
    "stored": (False, "sessions on the drive"),
    "stored_bytes": (False, "bytes of their K and V; what several share counts once"),
    "bytes_today": (False, "bytes written since midnight UTC"),
    "bytes_per_hit": (False, "bytes written for each hit, over all days"),
    "admits_all": (False, "1: everything is stored; 0: only what is wanted a second time"),
}


class SessionFigures(Collector):
    """The store's counters and sizes, as they were after the last step."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}

    def update(self, figures: dict[str, float]) -> None:
        """After a step."""
        self.figures = figures

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for name, value in self.figures.items():
            counts, text = _SESSIONS[name]
            kind = CounterMetricFamily if counts else GaugeMetricFamily
            yield kind(f"kvdrive_sessions_{name}", text, value)


class Rate:
    """How many of something happened per second, over the last RATE_SECONDS. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        """So many have just happened."""
        self._counts.append((self._clock(), count))
        self._forget()

    def per_second(self) -> float:
        """The rate now. It may be read from another thread."""
        since = self._clock() - RATE_SECONDS
        return sum(count for at, count in tuple(self._counts) if at >= since) / RATE_SECONDS

    def _forget(self) -> None:
        since = self._clock() - RATE_SECONDS
        while self._counts[0][0] < since:
            self._counts.popleft()


class Metrics:
    """Names follow Prometheus: seconds, bytes, `_total` for counters."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.drive = DriveCounters()
        self._registry.register(self.drive)
        self.sessions = SessionFigures()
        self._registry.register(self.sessions)
        self.requests = Counter("kvdrive_requests", ANSWERS, ["path", "status"], registry=self._registry)
        resumes = "prompts by how their stored prefix was used: attend, load, recompute as the fastest, none stored"
        self.resumes = Counter("kvdrive_resumes", resumes, ["strategy"], registry=self._registry)
        self.cancelled = self._counter("cancelled_requests", "requests whose client went away")
        self.prompt_tokens = self._counter("prompt_tokens", "tokens of prompts that were begun")
        self.cached_tokens = self._counter("cached_prompt_tokens", "of those, found on the drive")
        self.new_tokens = self._counter("generated_tokens", "tokens generated")
        self.drafted = Counter(
            "kvdrive_drafted_tokens", "tokens drafted, by what drafts", ["by"], registry=self._registry
        )
        accepted = "of those, accepted: the model would have chosen them"
        self.accepted = Counter("kvdrive_accepted_tokens", accepted, ["by"], registry=self._registry)
        self.removed_tokens = self._counter("removed_tokens", "tokens that left because the positions were used up")
        self.first_token = self._histogram("time_to_first_token_seconds", "from the request to its first token")
        self.step = self._histogram("step_seconds", "one decode step of the sequences that share a call of the model")
        self.batch = self._histogram("batch_size", "sequences that shared a decode step", _SEQUENCES)
        self.chunks = self._counter("prefill_chunks", "parts of prompts that were computed")
        self.repeated = self._counter("repeated_steps", "shared decode steps that failed and were repeated one by one")
        self.rate = Rate()
        self.watch("tokens_per_second", f"tokens generated in the last {RATE_SECONDS} seconds", self.rate.per_second)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge whose value is asked for when the metrics are read."""
        Gauge(f"kvdrive_{name}", text, registry=self._registry).set_function(value)

    def figures(self) -> dict[str, Any]:
        """What the page shows: counters since the start of the server; `sessions` is None where none are stored."""
        tokens = {"prompt": "prompt", "cached": "cached_prompt", "generated": "generated"}
        counts = {f"{name}_tokens": self.value(f"{metric}_tokens_total") for name, metric in tokens.items()}
        moved = {
            name: self.value(f"drive_{name}_total") for name in ("host_in_bytes", "host_out_bytes", "read_inside_bytes")
        }
        rate = {"tokens_per_second": self.rate.per_second()}
        drafts = {"drafted_tokens": _total(self.drafted), "accepted_tokens": _total(self.accepted)}
        return counts | drafts | moved | rate | {"sessions": self.sessions.figures or None}

    def value(self, name: str) -> float:
        """The value of a metric without labels; 0 for one that is not there yet."""
        return self._registry.get_sample_value(f"kvdrive_{name}") or 0

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"kvdrive_{name}", text, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
        return Histogram(f"kvdrive_{name}", text, buckets=buckets, registry=self._registry)


def _total(counter: Counter) -> float:
    """Over all labels."""
    samples = [one for family in counter.collect() for one in family.samples]
    return sum(one.value for one in samples if one.name.endswith("_total"))
