"""Replays a trace in virtual time. Index and eviction are the store's own code; times come from the machine's rates."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

from kvdrive.sessions.entry import Entry, NewEntry
from kvdrive.sessions.eviction import make_eviction
from kvdrive.sessions.eviction.queue_aware import QueueAware
from kvdrive.sessions.index import Index
from kvdrive.sessions.replay.hardware import Machine, Model
from kvdrive.sessions.replay.traces import Request, Trace

_ROOT = -1
_LOOKED_AT = 64  # waiting requests that the window looks at, at most


@dataclass
class Result:
    """What a replay counted. `hits`: requests with history, that found some of it (`returning`: all with history).

    `memory_hits`: of the hits, those whose session was in memory. `recomputed`: requests
    whose K and V would have taken longer to load than to compute. Times in seconds; `prefill` is GPU time.
    """

    requests: int = 0
    returning: int = 0
    hits: int = 0
    memory_hits: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    recomputed: int = 0
    evictions: int = 0
    bytes_written: int = 0
    prefill: float = 0.0
    decode: float = 0.0
    first_token: float = 0.0
    end: float = 0.0

    def figures(self, machine: Machine) -> dict[str, float]:
        """Shares, means and costs."""
        hours = self.end / 3600
        gpu = self.prefill / 3600 * machine.gpus * machine.gpu_price
        store = hours * (machine.memory * machine.memory_price + machine.disk * machine.disk_price) / 1e9
        return {
            "requests": self.requests,
            "hit_rate": _share(self.hits, self.returning),
            "memory_share_of_hits": _share(self.memory_hits, self.hits),
            "token_hit_rate": _share(self.cached_tokens, self.prompt_tokens),
            "mean_ttft_seconds": _share(self.first_token, self.requests),
            "gpu_prefill_seconds": self.prefill,
            "prefill_tokens_per_second": _share(self.prompt_tokens, self.prefill),
            "gpu_decode_seconds": self.decode,
            "prefill_usd": gpu,
            "storage_usd": store,
            "recomputed": self.recomputed,
            "evictions": self.evictions,
            "bytes_written": self.bytes_written,
        }


def replay(trace: Trace, model: Model, machine: Machine, policy: str, *, keep: bool = True) -> Result:
    """Replay all requests; `policy` names an eviction policy. `keep` False: every prompt is computed whole."""
    return _Replay(trace, model, machine, policy, keep=keep).run()


class _Replay:
    """`shelf` indexes what is kept at all, `memory` what of it is in memory: each of its entries stands for one of
    the shelf's, whose number is the session number in its slices."""

    def __init__(self, trace: Trace, model: Model, machine: Machine, policy: str, *, keep: bool) -> None:
        self._trace, self._model, self._machine, self._keep = trace, model, machine, keep
        self._now = 0.0
        self._shelf = Index(":memory:", lambda: self._now)
        self._memory = Index(":memory:", lambda: self._now)
        self._shelf_policy, self._memory_policy = make_eviction(policy), make_eviction(policy)
        self._looks_ahead = isinstance(self._shelf_policy, QueueAware)
        self._resident: dict[int, int] = {}  # number on the shelf -> number in memory
        self._ready: dict[int, float] = {}  # when a prefetch is complete
        self._names = count(1)
        self._queue: deque[Request] = deque()
        self._prefill_free = self._disk_free = 0.0
        self._sizes = self._kept = 0
        self.result = Result()

    def run(self) -> Result:
        arrivals: Iterator[Request] = iter(self._trace.requests)
        ends: list[tuple[float, int, Request]] = []
        order, free = count(), self._machine.slots
        upcoming = next(arrivals, None)
        while upcoming is not None or ends:
            if upcoming is not None and (not ends or upcoming.seconds <= ends[0][0]):
                self._now = upcoming.seconds
                self._queue.append(upcoming)
                upcoming = next(arrivals, None)
            else:
                self._now, _, done = heapq.heappop(ends)
                free += 1
                if self._keep:
                    self._put(done)
            self._prefetch()
            while free and self._queue:
                request = self._queue.popleft()
                free -= 1
                heapq.heappush(ends, (self._start(request), next(order), request))
        self.result.end = self._now
        self._shelf.close()
        self._memory.close()
        return self.result

    def _start(self, request: Request) -> float:
        """Begin a request. Returns when its last token is generated."""
        result, model = self.result, self._model
        cached, entry = self._find(request)
        begin = max(self._now, self._prefill_free)
        load = self._load(entry, cached, begin, counts=cached > request.common and request.turn > 0)
        compute = (request.tokens - cached) * model.prefill
        busy = max(load, compute) if self._machine.overlap else load + compute
        if busy > (whole := request.tokens * model.prefill):  # a restore that does not pay is a recompute
            busy, cached = whole, 0
            result.recomputed += 1
        self._prefill_free = begin + busy
        result.requests += 1
        result.returning += request.turn > 0
        result.hits += cached > request.common and request.turn > 0
        result.prompt_tokens += request.tokens
        result.cached_tokens += cached
        result.prefill += busy
        result.first_token += begin + busy - request.seconds
        result.decode += request.output * model.decode
        return begin + busy + request.output * model.decode

    def _find(self, request: Request) -> tuple[int, Entry | None]:
        depth, entries = self._shelf.find(_ROOT, request.keys) if self._keep else (0, [])
        if not depth:
            return 0, None
        with self._shelf.transaction():
            self._shelf.use(entries[0].id)
        return min(depth * self._trace.block, request.tokens - 1), entries[0]

    def _load(self, entry: Entry | None, tokens: int, begin: float, *, counts: bool) -> float:
        """Seconds until K and V of the first `tokens` tokens are in the GPU."""
        if entry is None:
            return 0.0
        resident = self._resident.get(entry.id)
        if resident is not None and self._ready.get(entry.id, 0.0) <= begin:
            self.result.memory_hits += counts
            with self._memory.transaction():
                self._memory.use(resident)
            rate = self._machine.pcie
        else:
            self._bring(entry)
            rate = self._machine.disk_rate
        return 0.0 if self._machine.in_place else tokens * self._model.bytes_per_token / rate

    def _put(self, request: Request) -> None:
        """Keep what a request has computed, in memory first. The session that it goes on with is replaced."""
        keys = list(request.kept)
        if not keys:
            return
        depth, entries = self._shelf.find(_ROOT, keys)
        if depth == len(keys):
            with self._shelf.transaction():
                self._shelf.use(entries[0].id)
            return
        block, per_token = self._trace.block, self._model.bytes_per_token
        with self._shelf.transaction():
            for entry in entries:
                if entry.tokens == depth * block:  # nothing of it is left out
                    self._forget(entry)
                    break
            new = NewEntry(_ROOT, "", "", [], "", per_token, block, tokens=len(keys) * block, last=keys[-1])
            number = self._shelf.add(new, keys)
        self.result.bytes_written += (len(keys) - depth) * block * per_token
        self._sizes += len(keys) * block * per_token
        self._kept += 1
        entry_now = self._shelf.get(number)
        assert entry_now is not None
        self._bring(entry_now)
        self._ready.pop(number, None)
        self._shrink()

    def _bring(self, entry: Entry) -> None:
        """Put a session into memory; others leave for the disk."""
        if entry.id in self._resident or entry.bytes > self._machine.memory:
            return
        name = next(self._names)
        new = NewEntry(
            _ROOT,
            "",
            "",
            [[0, entry.id, 0, 1]],
            "",
            entry.bytes_per_token,
            entry.tokens,
            tokens=entry.tokens,
            last=name,
        )
        with self._memory.transaction():
            self._resident[entry.id] = self._memory.add(new, [name])
            if self._looks_ahead and self._memory.bytes() > self._machine.memory:
                self._memory_policy.look_ahead([self._resident[n] for n in self._wanted() if n in self._resident])
            while self._memory.bytes() > self._machine.memory:
                victim = self._memory_policy.victim(self._memory)
                assert victim is not None
                self._memory.remove(victim.id)
                del self._resident[victim.slices[0][1]]

    def _shrink(self) -> None:
        limit = self._machine.memory + self._machine.disk
        if self._looks_ahead and self._shelf.bytes() > limit:
            self._shelf_policy.look_ahead(self._wanted())
        while self._shelf.bytes() > limit:
            victim = self._shelf_policy.victim(self._shelf)
            assert victim is not None
            with self._shelf.transaction():
                self._forget(victim)
            self.result.evictions += 1

    def _forget(self, entry: Entry) -> None:
        self._shelf.remove(entry.id)
        resident = self._resident.pop(entry.id, None)
        if resident is not None:
            with self._memory.transaction():
                self._memory.remove(resident)

    def _wanted(self, window: int = _LOOKED_AT) -> list[int]:
        """Sessions that the first `window` waiting requests will use."""
        if not (self._kept and self._queue):
            return []
        mean = self._sizes / self._kept
        window = min(window, _LOOKED_AT, int((self._machine.memory + self._machine.disk) / mean))
        found = (self._shelf.find(_ROOT, request.keys) for request in islice(self._queue, window))
        return [entries[0].id for depth, entries in found if depth]

    def _prefetch(self) -> None:
        """Bring the sessions of waiting requests from disk to memory: as many as fit there."""
        if not (self._machine.prefetch and self._queue and len(self._resident) < self._shelf.count()):
            return
        for number in self._wanted(max(1, int(self._machine.memory / (self._sizes / self._kept)))):
            entry = self._shelf.get(number)
            if entry is None or number in self._resident:
                continue
            self._disk_free = max(self._now, self._disk_free) + entry.bytes / self._machine.disk_rate
            self._ready[number] = self._disk_free
            self._bring(entry)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
