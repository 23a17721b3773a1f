"""The thread that owns model and drive: it takes requests from a queue and generates for several of them in turns.

Each turn advances every running sequence by one token, so that a short answer does not wait for a long one; a prefill
takes a turn as well. Everything that touches the drive happens in this thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from transformers.cache_utils import Cache

from kvdrive.errors import KvdriveError, TargetError
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.decode import Sampling, Step, steps
from kvdrive.plugins.attach import AttentionOptions
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.server.idle import IdleSequences
from kvdrive.server.metrics import Metrics
from kvdrive.targets.group import DriveGroup

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """The most requests that wait, sequences that run at once, and finished sequences that stay on the drive.

    `tokens`: room on the drive for all sequences together. A request counts with the most tokens it may generate.
    """

    tokens: int
    waiting: int = 64
    running: int = 4
    idle: int = 8


class QueueFull(KvdriveError):
    """The queue of waiting requests is full."""


@dataclass(frozen=True)
class Token:
    """A new token; `cached` tokens of the prompt were on the drive."""

    number: int
    cached: int


@dataclass(frozen=True)
class End:
    """The generation is over; `error` says why it failed."""

    error: Exception | None = None


@dataclass(eq=False)
class Job:
    """A request. `notify` is called in the scheduler's thread; any thread may set `cancelled` at any time."""

    prompt: list[int]
    new_tokens: int
    sampling: Sampling
    notify: Callable[[Token | End], None]
    cancelled: threading.Event = field(default_factory=threading.Event)
    arrived: float = field(default_factory=time.perf_counter)

    @property
    def most_tokens(self) -> int:
        """The most tokens that the sequence can have on the drive."""
        return len(self.prompt) + self.new_tokens


@dataclass(eq=False)
class _Running:
    job: Job
    cache: Cache
    cached: int
    steps: Iterator[Step]
    tokens: list[int]


class Scheduler:
    """Serves jobs from `start` to `stop`. `drives` is opened and closed in the scheduler's thread."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        drives: AbstractContextManager[DriveGroup],
        attention: AttentionOptions,
        limits: Limits,
        metrics: Metrics,
        threads: int = 1,
    ) -> None:
        self._checkpoint = checkpoint
        self._drives = drives
        self._attention = attention
        self._limits = limits
        self._threads = threads
        self._metrics = metrics
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: list[_Running] = []
        self._idle_count = 0
        self._stopping = False
        self._ready = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="generation", daemon=True)
        metrics.watch("requests_waiting", "requests in the queue", lambda: len(self._waiting))
        metrics.watch("sequences_running", "sequences in generation", lambda: len(self._running))
        metrics.watch("sequences_idle", "finished sequences kept on the drive", lambda: self._idle_count)

    def start(self) -> None:
        """Open the drive. Raises the errors of opening it."""
        self._thread.start()
        self._ready.wait()
        if self.failure:
            raise self.failure

    def stop(self) -> None:
        """End every job and close the drive."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def submit(self, job: Job) -> None:
        """Queue a job. Raises QueueFull, TargetError."""
        with self._changed:
            if self.failure or self._stopping:
                raise TargetError("the drive is gone: restart the server") from self.failure
            if len(self._waiting) >= self._limits.waiting:
                raise QueueFull(f"{self._limits.waiting} requests wait already: try again in a moment")
            self._waiting.append(job)
            self._changed.notify()

    @property
    def load(self) -> tuple[int, int]:
        """The numbers of waiting and of running jobs."""
        return len(self._waiting), len(self._running)

    # ---- in the scheduler's thread ----

    def _serve(self) -> None:
        torch.set_num_threads(self._threads)  # counts for this thread only
        try:
            with self._drives as drives, self._attach(drives) as attachment:
                idle = IdleSequences(self._limits.idle, lambda cache: cache.reset())
                self._ready.set()
                while self._admit(attachment, idle):
                    for running in list(self._running):
                        self._advance(running, idle)
                    self._idle_count = len(idle)
                    self._metrics.drive.update(drives.stats(), drives.device_ns())
        except Exception as error:
            if self._ready.is_set():  # before that, `start` raises the error
                log.exception("generation has ended")
            self.failure = error
        finally:
            self._ready.set()
            self._end_all()

    def _attach(self, drives: DriveGroup) -> Attachment:
        chosen = self._attention
        return attach(
            self._checkpoint.model,
            drives,
            chosen.attention,
            chosen.ratio,
            spill=chosen.spill,
            on_failure=chosen.on_failure,
        )

    def _admit(self, attachment: Attachment, idle: IdleSequences) -> bool:
        """Wait for jobs and begin those that may run. Returns False when the server stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._waiting or self._running)
            if self._stopping:
                return False
            jobs = self._next_jobs()
        for job in jobs:
            idle.shrink(
                self._limits.tokens - sum(running.job.most_tokens for running in self._running) - job.most_tokens
            )
            self._running.append(self._begin(job, attachment, idle))
        return True

    def _next_jobs(self) -> list[Job]:
        """The jobs that may begin now, in the order of arrival. Jobs cancelled while they waited are skipped."""
        jobs: list[Job] = []
        taken = sum(running.job.most_tokens for running in self._running)
        while self._waiting and len(self._running) + len(jobs) < self._limits.running:
            if self._waiting[0].cancelled.is_set():
                self._metrics.cancelled.inc()
                self._waiting.popleft().notify(End())
                continue
            taken += self._waiting[0].most_tokens
            if taken > self._limits.tokens:
                break
            jobs.append(self._waiting.popleft())
        return jobs

    def _begin(self, job: Job, attachment: Attachment, idle: IdleSequences) -> _Running:
        cache = idle.take(job.prompt) or attachment.cache()
        cached = cache.get_seq_length()
        self._metrics.prompt_tokens.inc(len(job.prompt))
        self._metrics.cached_tokens.inc(cached)
        generation = steps(
            self._checkpoint.model,
            torch.tensor([job.prompt]),
            cache,
            job.new_tokens,
            sampling=job.sampling,
            stop_ids=self._checkpoint.stop_ids,
        )
        return _Running(job, cache, cached, generation, list(job.prompt))

    def _advance(self, running: _Running, idle: IdleSequences) -> None:
        """Compute a sequence's next token, or end it. A failed command ends only this sequence, a lost drive all."""
        job = running.job
        if job.cancelled.is_set():
            self._metrics.cancelled.inc()
            self._finish(running, idle)
            return
        began = time.perf_counter()
        try:
            step = next(running.steps, None)
        except TargetError:
            raise
        except Exception as error:
            log.warning("a generation failed: %s", error)
            self._running.remove(running)
            running.cache.reset()
            job.notify(End(error))
            return
        if step is None:
            self._finish(running, idle)
            return
        first = len(running.tokens) == len(job.prompt)
        now = time.perf_counter()
        (self._metrics.first_token if first else self._metrics.step).observe(now - (job.arrived if first else began))
        self._metrics.new_tokens.inc()
        running.tokens.append(int(step.tokens[0]))
        job.notify(Token(running.tokens[-1], running.cached))

    def _finish(self, running: _Running, idle: IdleSequences) -> None:
        self._running.remove(running)
        if running.cache.get_seq_length():
            idle.keep(running.tokens, running.cache)
        running.job.notify(End())

    def _end_all(self) -> None:
        with self._changed:
            self._stopping = True
            jobs = [running.job for running in self._running] + list(self._waiting)
            self._running, self._waiting = [], deque()
        for job in jobs:
            job.notify(End(self.failure or TargetError("the server is stopping")))
