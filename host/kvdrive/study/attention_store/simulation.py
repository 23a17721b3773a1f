"""Replays a trace in virtual time. Index, eviction, look-ahead and the choice of what is in memory are the store's own
code; times come from the machine's rates.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, islice

from kvdrive.prefix.entry import Entry, NewEntry
from kvdrive.prefix.eviction import make_eviction
from kvdrive.prefix.eviction.queue_aware import QueueAware
from kvdrive.prefix.eviction.window import Window
from kvdrive.prefix.index import Index
from kvdrive.prefix.residents import Residents
from kvdrive.study.attention_store.hardware import Machine, Model
from kvdrive.study.attention_store.traces import Request, Trace

_ROOT = -1


@dataclass
class Result:
    """What a replay counted. `returning`: requests with history; `hits`: those of them that found some of it.

    `memory_hits`: of the hits, those whose session was in memory. `cached_tokens`: of the prompts, those that were
    found; `recomputed`: requests with such tokens that would have taken longer to load than to compute, and
    `loaded_tokens`: those of all others. Times in seconds; `prefill` and `decode` are those of `gpus` GPUs.
    """

    gpus: int = 1
    requests: int = 0
    returning: int = 0
    hits: int = 0
    memory_hits: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    loaded_tokens: int = 0
    recomputed: int = 0
    evictions: int = 0
    bytes_written: int = 0
    prefill: float = 0.0
    decode: float = 0.0
    first_token: float = 0.0
    begin: float = 0.0
    end: float = 0.0

    def figures(self, machine: Machine) -> dict[str, float]:
        """Shares, means and costs."""
        hours = (self.end - self.begin) / 3600
        gpu = self.prefill / 3600 * self.gpus * machine.gpu_price
        store = hours * (machine.memory * machine.memory_price + machine.disk * machine.disk_price) / 1e9
        return {
            "requests": self.requests,
            "hit_rate": _share(self.hits, self.returning),
            "hit_rate_of_all": _share(self.hits, self.requests),
            "memory_share_of_hits": _share(self.memory_hits, self.hits),
            "token_hit_rate": _share(self.cached_tokens, self.prompt_tokens),
            "token_load_rate": _share(self.loaded_tokens, self.prompt_tokens),
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


def replay(
    trace: Trace,
    model: Model,
    machine: Machine,
    policy: str,
    *,
    keep: bool = True,
    warm_up: int = 0,
    progress: Callable[[], object] = lambda: None,
) -> Result:
    """Replay all requests; `policy` names an eviction policy. `keep` False: every prompt is computed whole.

    The first `warm_up` requests fill the store and are not counted. `progress` is called for each request.
    """
    return Replay(trace, model, machine, policy, keep=keep).run(warm_up, progress)


@dataclass
class Waiting:
    """A request that waits for a slot since `seconds`. `entry`: the kept session that it will use, or None; of blocks,
    since those of whole sessions are found by their key."""

    seconds: float
    request: Request
    entry: int | None


class Replay:
    """See `replay`. `shelf` indexes what is kept at all, `memory` says what of it is in memory, by the shelf's numbers.

    What asks the store is in `_session_of`, `_find`, `_load`, `_put` and `_prefetch`, so that another store can take
    the place of the modelled one.

    One GPU (or group of them) computes a prefill or a decode step of all running sequences, never both: `clock` is the
    time spent on decode steps, and stands still during a prefill.
    """

    def __init__(self, trace: Trace, model: Model, machine: Machine, policy: str, *, keep: bool) -> None:
        self._trace, self._model, self._machine, self._keep = trace, model, machine, keep
        self._now = self._clock = 0.0
        self._shelf = Index(":memory:", lambda: self._now)
        self._memory = Residents(machine.memory, policy, lambda: self._now)
        self._shelf_policy = make_eviction(policy)
        self._looks_ahead = isinstance(self._shelf_policy, QueueAware)
        self._there: dict[int, Entry] = {}  # all of the shelf
        self._numbers: dict[int, int] = {}  # key of a whole session -> its number on the shelf
        self._lengths: dict[int, int] = {}  # tokens of all of the shelf
        self._room = model.window if machine.reserved else 0  # tokens that a whole session takes, 0: its own
        self._answering: set[int] = set()  # conversations with a running sequence
        self._ready: dict[int, float] = {}  # when a prefetch is complete
        self._queue: deque[Waiting] = deque()
        self._running: list[tuple[float, int, Request]] = []  # the clock when it ends
        self._disk_free = 0.0
        self._began = self._loaded = 0.0  # when the last prefill began; when the last load ended
        self._window = Window()
        # Turns of a file do not wait for answers; whole sessions are found by their keys.
        self._overlapping = trace.block > 0 and not any(request.then for request in trace.requests)
        self._order = count()
        self._arrivals = [(request.seconds, next(self._order), request) for request in trace.requests]
        heapq.heapify(self._arrivals)
        self.result = Result(model.gpus)

    def run(self, warm_up: int, progress: Callable[[], object] = lambda: None) -> Result:
        started = 0
        while self._arrivals or self._queue or self._running:
            while self._arrivals and self._arrivals[0][0] <= self._now:
                self._arrive()
            if self._may_start():
                if started == warm_up:
                    self.result = Result(self._model.gpus, begin=self._now)
                started += 1
                self._start(self._queue.popleft())
                progress()
            else:
                self._decode()
        self.result.end = self._now
        self._shelf.close()
        self._memory.close()
        return self.result

    def _arrive(self) -> None:
        seconds, _, request = heapq.heappop(self._arrivals)
        self._queue.append(Waiting(seconds, request, self._session_of(request)))
        self._prefetch()

    def _may_start(self) -> bool:
        """True if the next request has a slot, and the answer that it follows is there."""
        free = len(self._running) < self._machine.slots
        return free and bool(self._queue) and self._queue[0].request.conversation not in self._answering

    def _session_of(self, request: Request) -> int | None:
        if not self._trace.block:
            return self._numbers.get(request.keys[0])
        depth, entries = self._shelf.find(_ROOT, request.keys) if self._keep else (0, [])
        return entries[0].id if depth else None

    def _decode(self) -> None:
        """Let the running sequences decode until one ends or a request arrives."""
        end = self._now + self._running[0][0] - self._clock if self._running else math.inf
        until = min(end, self._arrivals[0][0] if self._arrivals else math.inf)
        if self._running:
            self._clock += until - self._now
            self.result.decode += until - self._now
        self._now = until
        if until < end:
            return
        self._clock, _, done = heapq.heappop(self._running)
        self._answering.discard(done.conversation)
        if self._keep:
            self._put(done)
        if self._overlapping:  # what a waiting request goes on with may have ended just now
            for waiting in islice(self._queue, self._window.of(self._machine.memory)):
                waiting.entry = self._session_of(waiting.request)
        if done.then is not None:
            heapq.heappush(self._arrivals, (self._now + done.then.seconds, next(self._order), done.then))
        self._prefetch()

    def _start(self, waiting: Waiting) -> None:
        """Compute the prompt of a request; then it runs."""
        result, model, request = self.result, self._model, waiting.request
        cached, entry = self._find(request)
        load = self._load(entry, cached, counts=cached > request.common and request.turn > 0)
        compute = model.compute(request.tokens - cached, cached)
        if self._machine.overlap:  # the read buffer takes K and V while the request before computes
            loaded = max(self._loaded, self._began, waiting.seconds) + load
            busy = max(loaded - self._now, compute)
        else:
            loaded, busy = self._now + load, load + compute
        if busy > (whole := model.compute(request.tokens)):  # a restore that does not pay is a recompute
            busy = whole
            result.recomputed += 1
        elif cached:
            self._loaded = loaded
            result.loaded_tokens += cached
        self._began = self._now
        self._now += busy
        result.requests += 1
        result.returning += request.turn > 0
        result.prompt_tokens += request.tokens
        result.cached_tokens += cached
        result.prefill += busy
        result.first_token += self._now - waiting.seconds
        heapq.heappush(self._running, (self._clock + request.output * model.decode, next(self._order), request))
        if request.conversation:
            self._answering.add(request.conversation)

    def _find(self, request: Request) -> tuple[int, Entry | None]:
        depth, entries = self._shelf.find(_ROOT, request.keys) if self._keep else (0, [])
        if not depth:
            return 0, None
        with self._shelf.transaction():
            self._shelf.use(entries[0].id)
        found = depth * self._trace.block or self._lengths[entries[0].id]
        return min(found, request.tokens - 1), entries[0]

    def _load(self, entry: Entry | None, tokens: int, *, counts: bool) -> float:
        """Seconds until K and V of the first `tokens` tokens are in the GPU."""
        if entry is None:
            return 0.0
        self.result.hits += counts
        if entry.id in self._memory and self._ready.get(entry.id, 0.0) <= self._now:
            self.result.memory_hits += counts
            self._memory.use(entry.id)
            rate = self._machine.pcie
        else:
            self._bring(entry)
            rate = self._machine.disk_rate
        return 0.0 if self._machine.in_place else tokens * self._model.bytes_per_token / rate

    def _put(self, request: Request) -> None:
        """Keep what a request has computed, in memory first. The session that it goes on with is replaced, or grows in
        the room that it has."""
        if request.replaces:
            self._replace(request.replaces)
        keys = list(request.kept)
        depth, entries = self._shelf.find(_ROOT, keys)
        block = self._trace.block
        if block and depth == len(keys):
            self._used(entries[0].id)
            return
        tokens = len(keys) * block or request.stored
        known = depth * block or sum(self._lengths[entry.id] for entry in entries)
        computed = request.tokens + request.output
        fresh = min(computed, tokens - known) if block else min(computed - known, tokens)
        self.result.bytes_written += fresh * self._model.bytes_per_token
        self._window.stored(tokens * self._model.bytes_per_token)
        room = tokens if block else self._room or tokens
        if not block and entries and entries[0].tokens == room:
            self._used(entries[0].id)
            kept = entries[0]
        else:
            kept = self._replaced(entries, keys, room, known)
        self._lengths[kept.id] = tokens
        self._bring(kept)
        self._ready.pop(kept.id, None)
        self._shrink()

    def _used(self, number: int) -> None:
        with self._shelf.transaction():
            self._shelf.use(number)

    def _replaced(self, entries: list[Entry], keys: list[int], room: int, known: int) -> Entry:
        """A new session of `room` tokens, instead of the one of `entries` of which nothing is left out."""
        block = self._trace.block
        with self._shelf.transaction():
            for entry in entries:
                if not block or entry.tokens == known:
                    self._forget(entry)
                    break
            per_token = self._model.bytes_per_token
            new = NewEntry(_ROOT, "", "", [], "", per_token, block or room, tokens=room, last=keys[-1])
            number = self._shelf.add(new, keys)
        added = self._shelf.get(number)
        assert added is not None
        self._there[number], self._numbers[keys[-1]] = added, number
        return added

    def _replace(self, last: int) -> None:
        _, entries = self._shelf.find(last, ())
        with self._shelf.transaction():
            for entry in entries[:1]:
                self._forget(entry)

    def _bring(self, entry: Entry) -> None:
        """Put a session into memory; others leave for the disk."""
        if entry.id not in self._memory:
            self._memory.admit(entry.id, entry.bytes, lambda: self._wanted(self._machine.memory))

    def _shrink(self) -> None:
        limit = self._machine.memory + self._machine.disk
        if self._looks_ahead and self._shelf.accounts.bytes() > limit:
            self._shelf_policy.look_ahead(self._wanted(limit))
        while self._shelf.accounts.bytes() > limit:
            victim = self._shelf_policy.victim(self._shelf)
            assert victim is not None
            with self._shelf.transaction():
                self._forget(victim)
            self.result.evictions += 1

    def _forget(self, entry: Entry) -> None:
        self._shelf.remove(entry.id)
        del self._there[entry.id], self._lengths[entry.id]
        self._numbers.pop(entry.last, None)
        self._memory.forget(entry.id)

    def _wanted(self, size: int) -> list[int]:
        """Sessions of waiting requests, as many as `size` bytes hold on average, the next request's first."""
        queued = islice(self._queue, self._window.of(size))
        if self._trace.block:
            return [waiting.entry for waiting in queued if waiting.entry is not None]
        numbers = self._numbers
        return [numbers[key] for waiting in queued if (key := waiting.request.keys[0]) in numbers]

    def _prefetch(self) -> None:
        """Bring the sessions of waiting requests from disk to memory: as many as fit there."""
        if not (self._machine.prefetch and self._queue and len(self._memory) < len(self._there)):
            return
        wanted = self._wanted(self._machine.memory)
        for number, size in self._memory.missing((one, self._there[one].bytes) for one in wanted if one in self._there):
            self._disk_free = max(self._now, self._disk_free) + size / self._machine.disk_rate
            self._ready[number] = self._disk_free
            self._bring(self._there[number])


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
