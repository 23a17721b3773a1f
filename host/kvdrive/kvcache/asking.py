"""Queries in flight to the drives that answer them: many at a time, while the host does something else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Several
from concurrent.futures import Future
from functools import partial
from typing import Any

from kvdrive.kvcache.queries import Job, Queries
from kvdrive.kvcache.seen import LOWEST_MAX
from kvdrive.kvcache.sequence import Answer, Endpoint
from kvdrive.kvcache.slices import gather
from kvdrive.targets.queue import WorkQueue

_TOGETHER = 8  # queries sent to a drive together; it works on them while the host prepares the next ones
Meanwhile = Callable[[], None]


class HiddenCountsError(Exception):
    """All scores of a query are so low that tokens hidden from it would count. Its token has to ask separately."""


def ask(several: Several[Queries], meanwhile: Meanwhile | None = None) -> None:
    """Return when the answers to all queries are in their places. `meanwhile` is called when they are with the drives.

    Raises UnsupportedError, CommandError, TargetError.
    """
    try:
        _ask(several, meanwhile, together=True)
    except HiddenCountsError:
        _ask(several, None, together=False)


def _ask(several: Several[Queries], meanwhile: Meanwhile | None, *, together: bool) -> None:
    shared = several[0].part.shared
    waits_here = meanwhile is None and shared.backing.xcache is None and shared.waited is None
    asked = send((job for one in several for job in one.jobs(together)), here=waits_here)
    if shared.backing.xcache is not None:
        for one in several:
            one.part.prepare_next(one.layer, one.new_tokens)
    if meanwhile is not None:
        meanwhile()
    began = time.perf_counter()
    try:
        gather(asked)
    except HiddenCountsError:
        raise
    except Exception:
        for one in several:
            one.part.writeback.transfers.finish()  # if an append failed, this raises its error, which explains more
        raise
    if shared.waited is not None:
        shared.waited(time.perf_counter() - began)


def send(jobs: Iterable[tuple[Endpoint, Job]], here: bool) -> list[Future[None]]:
    """Start jobs where they are answered, several at a time. A future may raise HiddenCountsError, and drives' errors.

    When all futures are done, every answer is in its place. `here`: the caller waits at once, so its thread may do the
    last ones.
    """
    waiting: dict[tuple[WorkQueue[Any], Answer], list[Job]] = {}
    answers: list[Future[None]] = []
    for one, job in jobs:
        where = one.queue, one.answer
        mine = waiting.setdefault(where, [])
        mine.append(job)
        if len(mine) >= _TOGETHER:
            answers.append(one.queue.start(partial(_answer, waiting.pop(where), one.answer)))
    for number, ((queue, answer), rest) in enumerate(waiting.items(), 1):
        start = queue.start_here if here and number == len(waiting) else queue.start
        answers.append(start(partial(_answer, rest, answer)))
    return answers


def _answer(jobs: list[Job], answer: Answer, target: Any) -> None:
    """Attend, and copy every output to its place. Raises HiddenCountsError."""
    results = answer(target, [job.query for job in jobs])
    for job, result in zip(jobs, results, strict=True):
        if job.hides and int(result.max.min()) < LOWEST_MAX:
            raise HiddenCountsError
        job.out[:] = result.out.reshape(job.out.shape)
        if job.unread is not None:
            job.unread.add(job.step, result.alpha)
