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
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from transformers.cache_utils import Cache

from kvdrive.errors import InputError, KvdriveError, TargetError, UnsupportedError
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.decode import Sampling, Step, steps
from kvdrive.plugins.attach import AttentionOptions
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.server.costs import Costs
from kvdrive.server.idle import IdleSequences
from kvdrive.server.kept import KeptSequences
from kvdrive.server.metrics import Metrics
from kvdrive.sessions.options import SessionOptions
from kvdrive.sessions.store import SessionStore
from kvdrive.targets.group import DriveGroup

log = logging.getLogger(__name__)
Result = TypeVar("Result")
Finished = IdleSequences | KeptSequences


@dataclass(frozen=True)
class Limits:
    """The most requests that wait, sequences that run at once, and finished sequences that are kept; 0 keeps none.

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
    """A new token; `cached` tokens of the prompt were on the drive. `restore`: see `idle.Taken`."""

    number: int
    cached: int
    restore: str = "none"


@dataclass(frozen=True)
class End:
    """The generation is over; `error` says why it failed. `session`: the number of its kept session, if it has one."""

    error: Exception | None = None
    session: int | None = None


@dataclass(eq=False)
class Job:
    """A request. `notify` is called in the scheduler's thread; any thread may set `cancelled` at any time.

    `session`: the name under which its sequence is kept, or "". `slot`: where it ran, from 0 on.
    """

    prompt: list[int]
    new_tokens: int
    sampling: Sampling
    notify: Callable[[Token | End], None]
    cancelled: threading.Event = field(default_factory=threading.Event)
    arrived: float = field(default_factory=time.perf_counter)
    session: str = ""
    slot: int = 0

    @property
    def most_tokens(self) -> int:
        """The most tokens that the sequence can have on the drive."""
        return len(self.prompt) + self.new_tokens


@dataclass(eq=False)
class _Running:
    job: Job
    cache: Cache
    cached: int
    restore: str
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
        sessions: SessionOptions | None = None,
    ) -> None:
        self._sessions = sessions
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
        self._costs = Costs()
        self._tasks: deque[tuple[Future[Any], Callable[[SessionStore], Any]]] = deque()
        self.slots: dict[int, int] = {}  # the session that was kept last on each slot
        self._stopping = False
        self._ready = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="generation", daemon=True)
        metrics.watch("requests_waiting", "requests in the queue", lambda: len(self._waiting))
        metrics.watch("sequences_running", "sequences in generation", lambda: len(self._running))
        metrics.watch("sequences_idle", "finished sequences kept on the drive", lambda: self._idle_count)
        metrics.watch("seconds_per_token_recompute", "of a prompt, measured", lambda: self._costs.recompute or 0)
        metrics.watch("seconds_per_token_resume", "behind a kept prefix, measured", lambda: self._costs.resume or 0)

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

    def with_sessions(self, work: Callable[[SessionStore], Result]) -> Future[Result]:
        """Call `work` with the store, in the scheduler's thread, between two steps.

        The future raises UnsupportedError without a store, TargetError when the server stops, and the errors of `work`.
        """
        future: Future[Result] = Future()
        with self._changed:
            if self.failure or self._stopping:
                future.set_exception(TargetError("the drive is gone: restart the server"))
            else:
                self._tasks.append((future, work))
                self._changed.notify()
        return future

    @property
    def load(self) -> tuple[int, int]:
        """The numbers of waiting and of running jobs."""
        return len(self._waiting), len(self._running)

    # ---- in the scheduler's thread ----

    def _serve(self) -> None:
        torch.set_num_threads(self._threads)  # counts for this thread only
        try:
            with self._drives as drives, self._attach(drives) as attachment:
                idle = self._finished(attachment)
                self._update(idle, drives)
                self._ready.set()
                while self._admit(idle):
                    for running in list(self._running):
                        self._advance(running, idle)
                    self._work(idle)
                    self._update(idle, drives)
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

    def _finished(self, attachment: Attachment) -> Finished:
        """Where finished sequences are kept: in the store, or in this process where drives cannot keep them."""
        if self._limits.idle and self._sessions is not None:
            try:
                attachment.keep_sessions(self._sessions)
                attachment.sessions.release(attachment.sessions.cache())  # raises where layers stay in memory
            except UnsupportedError as error:
                log.warning("sessions do not survive the server: %s", error)
            else:
                per_token = self._checkpoint.shape.bytes_per_token
                return KeptSequences(attachment.sessions, self._costs, per_token)
        return IdleSequences(self._limits.idle, attachment.cache, self._costs)

    def _update(self, idle: Finished, drives: DriveGroup) -> None:
        self._idle_count = len(idle)
        self._metrics.drive.update(drives.stats(), drives.device_ns())
        self._metrics.sessions.update(idle.figures())

    def _work(self, idle: Finished) -> None:
        """Do what other threads want to do with the store."""
        while self._tasks:
            future, work = self._tasks.popleft()
            if not isinstance(idle, KeptSequences):
                future.set_exception(UnsupportedError("this server keeps no sessions"))
                continue
            try:
                future.set_result(work(idle.store))
            except TargetError as error:
                future.set_exception(error)
                raise
            except Exception as error:
                future.set_exception(error)

    def _admit(self, idle: Finished) -> bool:
        """Wait for jobs and begin those that may run. Returns False when the server stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._waiting or self._running or self._tasks)
            if self._stopping:
                return False
            jobs = self._next_jobs()
        for job in jobs:
            running = [(one.job.most_tokens, idle.unsaved(one.cache), one.cache) for one in self._running]
            unwritten = sum(most - one.get_seq_length() + unsaved for most, unsaved, one in running)
            idle.shrink(self._limits.tokens - unwritten - job.most_tokens)
            try:
                self._running.append(self._begin(job, idle))
            except (InputError, UnsupportedError) as error:
                job.notify(End(error))
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

    def _begin(self, job: Job, idle: Finished) -> _Running:
        """Raises InputError for the name of a session that is in use."""
        taken = idle.take(job.prompt, job.session)
        cache, cached = taken.cache, int(taken.cache.get_seq_length())
        self._metrics.restores.labels(taken.restore).inc()
        job.slot = min(set(range(self._limits.running)) - {running.job.slot for running in self._running})
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
        return _Running(job, cache, cached, taken.restore, generation, list(job.prompt))

    def _advance(self, running: _Running, idle: Finished) -> None:
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
            idle.drop(running.cache)
            job.notify(End(error))
            return
        if step is None:
            self._finish(running, idle)
            return
        first = len(running.tokens) == len(job.prompt)
        now = time.perf_counter()
        if first:
            self._costs.measured(len(job.prompt) - running.cached, running.cached, now - began)
        (self._metrics.first_token if first else self._metrics.step).observe(now - (job.arrived if first else began))
        self._metrics.new_tokens.inc()
        running.tokens.append(int(step.tokens[0]))
        job.notify(Token(running.tokens[-1], running.cached, running.restore))

    def _finish(self, running: _Running, idle: Finished) -> None:
        self._running.remove(running)
        number = None
        if running.cache.get_seq_length():
            number = idle.keep(running.tokens, running.cache)
        else:
            idle.drop(running.cache)
        if number is not None:
            self.slots[running.job.slot] = number
        running.job.notify(End(session=number))

    def _end_all(self) -> None:
        with self._changed:
            self._stopping = True
            for future, _ in self._tasks:
                future.set_exception(TargetError("the server is stopping"))
            self._tasks.clear()
            jobs = [running.job for running in self._running] + list(self._waiting)
            self._running, self._waiting = [], deque()
        for job in jobs:
            job.notify(End(self.failure or TargetError("the server is stopping")))
