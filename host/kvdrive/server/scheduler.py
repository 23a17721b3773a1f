"""The thread that owns model and drive: it takes requests from a queue and lets `turns` generate for several of them.

Everything that touches the model or the drive happens in this thread, through an `engine.Engine`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.prefix.request import Request
from kvdrive.server.drafts import MakeDrafts, no_drafts
from kvdrive.server.engine import Engine, SessionStore
from kvdrive.server.jobs import End, Job, Limits, QueueFull, next_job
from kvdrive.server.metrics import Metrics
from kvdrive.server.running import Running
from kvdrive.server.turns import Turns

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Scheduler:
    """Serves jobs from `start` to `stop`. `engine` is opened and closed in the scheduler's thread. `drafts`: of each
    sequence.
    """

    def __init__(
        self,
        engine: AbstractContextManager[Engine[Any]],
        limits: Limits,
        metrics: Metrics,
        drafts: MakeDrafts = no_drafts,
    ) -> None:
        self._engine = engine
        self._drafts = drafts
        self._limits = limits
        self._metrics = metrics
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._turns: Turns | None = None
        self._idle_count = self._beginning = 0
        self._tasks: deque[tuple[Future[Any], Callable[[SessionStore], Any]]] = deque()
        self._seen: list[Request] = []
        self._stopping = False
        self._ready = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="generation", daemon=True)
        metrics.watch("requests_waiting", "requests in the queue", lambda: len(self._waiting))
        metrics.watch("sequences_running", "sequences in generation", lambda: self.load[1])
        metrics.watch("sequences_idle", "finished sequences stored on the drive", lambda: self._idle_count)

    def start(self) -> None:
        """Open the engine. Raises the errors of opening it."""
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

    def submit(self, *jobs: Job) -> None:
        """Queue the jobs of a request: all of them, or none. Raises QueueFull, TargetError."""
        with self._changed:
            if self.failure or self._stopping:
                raise TargetError("the drive is gone: restart the server") from self.failure
            if len({one.ask for one in self._waiting if one.tenant == jobs[0].tenant}) >= self._limits.waiting:
                raise QueueFull(f"{self._limits.waiting} requests wait already: try again in a moment")
            self._waiting.extend(jobs)
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
        return len(self._waiting), len(self._running) + self._beginning

    @property
    def slot_count(self) -> int:
        """The slots on which sequences run: their numbers are below this one."""
        return self._limits.running

    @property
    def slots(self) -> dict[tuple[str, int], int]:
        """The session that each tenant saved last on each slot. For the scheduler's thread."""
        return self._turns.slots if self._turns else {}

    @property
    def in_memory(self) -> set[int]:
        """The sessions whose K and V are in memory now. For the scheduler's thread."""
        return self._turns.in_memory if self._turns else set()

    @property
    def _running(self) -> list[Running]:
        return self._turns.running if self._turns else []

    # ---- in the scheduler's thread ----

    def _serve(self) -> None:
        try:
            with self._engine as engine:
                turns = self._turns = Turns(engine, self._limits, self._metrics, self._drafts)
                self._update(engine)
                self._ready.set()
                while self._admit(engine, turns):
                    turns.turn()
                    self._work(engine)
                    self._update(engine)
        except Exception as error:
            if self._ready.is_set():  # before that, `start` raises the error
                log.exception("generation has ended")
            self.failure = error
        finally:
            self._ready.set()
            self._end_all()

    def _update(self, engine: Engine[Any]) -> None:
        self._idle_count = engine.stored_count
        self._metrics.drive.update(*engine.drive_stats())
        self._metrics.sessions.update(engine.figures())

    def _work(self, engine: Engine[Any]) -> None:
        """Do what other threads want to do with the store."""
        while self._tasks:
            future, work = self._tasks.popleft()
            if engine.store is None:
                future.set_exception(UnsupportedError("this server stores no sessions"))
                continue
            try:
                future.set_result(work(engine.store))
            except TargetError as error:
                future.set_exception(error)
                raise
            except Exception as error:
                future.set_exception(error)

    def _admit(self, engine: Engine[Any], turns: Turns) -> bool:
        """Wait for jobs and begin those that may run. Returns False when the server stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._waiting or turns.running or self._tasks)
            if self._stopping:
                return False
            jobs = self._next_jobs()
            self._beginning = len(jobs)
        for job in jobs:
            limits = self._limits
            running = [(limits.room(one.job), engine.unsaved(one.sequence), one.held) for one in turns.running]
            unwritten = sum(most - held + unsaved for most, unsaved, held in running)
            engine.shrink(limits.tokens - unwritten - limits.room(job))
            try:
                turns.begin(job)
            except (InputError, UnsupportedError) as error:
                job.tell(End(error))
            self._beginning -= 1
        self._look_ahead(engine)
        return True

    def _look_ahead(self, engine: Engine[Any]) -> None:
        """Notify the store of sessions which requests wait, when these have changed."""
        with self._changed:
            waiting = [job.asked for job in self._waiting if job.may_begin and not job.computes_chances]
        if waiting != self._seen:
            engine.look_ahead(waiting)
            self._seen = waiting

    def _next_jobs(self) -> list[Job]:
        """The jobs that may begin now (see `next_job`). Those that were cancelled or late meanwhile are ended."""
        for job in list(self._waiting):
            if job.cancelled.is_set():
                self._metrics.cancelled.inc()
            elif not job.late:
                continue
            self._waiting.remove(job)
            job.tell(End(job.late))
        jobs: list[Job] = []
        running = [one.job for one in self._running]
        taken = sum(map(self._limits.room, running))
        while self._waiting and len(running) + len(jobs) < self._limits.running:
            chosen = next_job(self._waiting, running + jobs)
            if chosen is None:
                break
            taken += self._limits.room(chosen)
            if taken > self._limits.tokens:
                break
            self._waiting.remove(chosen)
            jobs.append(chosen)
        return jobs

    def _end_all(self) -> None:
        with self._changed:
            self._stopping = True
            for future, _ in self._tasks:
                future.set_exception(TargetError("the server is stopping"))
            self._tasks.clear()
            jobs = [running.job for running in self._running] + list(self._waiting)
            self._turns, self._waiting = None, deque()
        for job in jobs:
            job.tell(End(self.failure or TargetError("the server is stopping")))
