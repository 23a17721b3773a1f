"""Gives requests to the scheduler: a job for each answer that is generated."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from kvdrive.errors import KvdriveError
from kvdrive.server.call_reader import reader_of
from kvdrive.server.calls import Call
from kvdrive.server.constraints import asks_for_grammar
from kvdrive.server.differences import difference
from kvdrive.server.engine import ServedModel
from kvdrive.server.errors import ApiError
from kvdrive.server.generation import Form, Generation
from kvdrive.server.inputs import Input
from kvdrive.server.jobs import Event, Job, QueueFull
from kvdrive.server.replays import Replays, as_message, link
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.settings import Settings
from kvdrive.server.thoughts import ThoughtReader


class Submissions:
    """Queues requests that can be served."""

    def __init__(self, checkpoint: ServedModel, scheduler: Scheduler, replays: Replays, settings: Settings) -> None:
        self._tokenizer, self._stop_ids = checkpoint.tokenizer, checkpoint.stop_ids
        self._scheduler = scheduler
        self._replays = replays
        self._seconds = settings.allowed.seconds

    def submit(self, wanted: Input, tenant: str, arrived: float) -> list[Generation]:
        """Queue a job for each candidate of each prompt, in this order. `arrived`: see Job. Raises ApiError."""
        choices = []
        jobs: list[Job] = []
        for place in range(len(wanted.prompts)):
            leader = None
            for number in range(wanted.request.candidates):
                events: asyncio.Queue[Event] = asyncio.Queue()
                job = self._job(wanted, place, number, events)
                job.tenant, job.leader, job.arrived = tenant, leader, arrived
                job.ask = jobs[0].ask if jobs else job.ask
                leader = leader or job
                jobs.append(job)
                choices.append(Generation(job, events, self._tokenizer, self._form(wanted, place, tenant)))
        try:
            self._scheduler.submit(*jobs)
        except QueueFull as error:
            raise ApiError(429, str(error), code="queue_full") from error
        except KvdriveError as error:
            raise ApiError(503, str(error), code="unavailable") from error
        return choices

    def _job(self, wanted: Input, place: int, number: int, events: asyncio.Queue[Event]) -> Job:
        """The job of candidate `number` of the prompt at `place`, whose events go to `events`."""
        loop = asyncio.get_running_loop()

        def notify(event: Event) -> None:
            with suppress(RuntimeError):  # the loop is closed: the server has stopped
                loop.call_soon_threadsafe(events.put_nowait, event)

        request = wanted.request
        sampling = replace(request.sampling, seed=(request.sampling.seed + number) % 2**63)
        job = Job(wanted.prompts[place], wanted.new_tokens[place], sampling, notify)
        job.grammar = wanted.grammar and (wanted.grammar.copy() if place or number else wanted.grammar)
        job.rules, job.chances = request.rules(self._stop_ids), request.chances
        if request.candidates > request.choices and job.chances is None:
            job.chances = 0  # candidates are compared by them
        job.scores, job.followers = request.scores, 0 if number else request.candidates - 1
        job.session = request.session_name
        if wanted.encoded is not None:
            job.explain = lambda store: difference(self._tokenizer, store, job.tenant, job.prompt)
        job.seconds = min(request.deadline_seconds or math.inf, self._seconds)
        return job

    def _form(self, wanted: Input, place: int, tenant: str) -> Form:
        """How an answer to the prompt at `place` is read."""
        request, thoughts = wanted.request, None
        if wanted.encoded and not wanted.grammar:  # an answer with a grammar has no thoughts
            thoughts = wanted.encoded.thoughts
        return Form(
            request.stops,
            None if wanted.echoes is None else wanted.echoes[place],
            reader_of(wanted.calls, several=request.several_calls) if wanted.calls else None,
            asks_for_grammar(request),
            wanted.names,
            self._keeper(wanted, tenant),
            thoughts and ThoughtReader(thoughts[0], begun=thoughts[1]),
            shows_special=thoughts is not None and thoughts[0].is_special(self._tokenizer),
        )

    def _keeper(self, wanted: Input, tenant: str) -> Callable[[Generation], None] | None:
        """Keeps the tokens of an answer for the next turn of its conversation."""
        if wanted.encoded is None:
            return None
        before = wanted.encoded.conversation

        def keep(answer: Generation) -> None:
            said = "".join(one for one in answer.said if isinstance(one, str))
            calls = [(one.id, one.name, one.arguments) for one in answer.said if isinstance(one, Call)]
            self._replays.keep(tenant, link(before, as_message(said, calls)), answer.tokens)

        return keep
