"""The running sequences, and the calls of the model that advance them.

A turn is one decode step of every sequence whose prompt is computed, in one call of the model for up to `batch` of
them, and then one chunk of one prompt. So a long prompt delays the others' tokens by a chunk, not by itself. Sequences
join and leave between two calls. A step gives a sequence its next token, and those behind it that were drafted and that
it chooses.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import torch

from kvdrive.errors import TargetError, UnsupportedError
from kvdrive.nvme.errors import CommandError
from kvdrive.server.chances import Chances
from kvdrive.server.drafts import MakeDrafts, no_drafts
from kvdrive.server.engine import Engine
from kvdrive.server.grammar import GrammarError
from kvdrive.server.jobs import End, Job, Limits, Prompt
from kvdrive.server.metrics import Metrics
from kvdrive.server.running import Running

log = logging.getLogger(__name__)
_SCORED = 64  # tokens of a prompt whose logits are in memory at the same time


class Turns:
    """Begins, advances and ends sequences of `engine`. `slots`: the session that each tenant saved last on each slot.
    `drafts`: of each sequence.

    All methods are for the scheduler's thread.
    """

    def __init__(self, engine: Engine[Any], limits: Limits, metrics: Metrics, drafts: MakeDrafts = no_drafts) -> None:
        self.running: list[Running] = []
        self.slots: dict[tuple[str, int], int] = {}
        self._engine = engine
        self._limits = limits
        self._metrics = metrics
        self._drafts = drafts
        self._said = min(limits.batch, limits.running) == 1

    @property
    def in_memory(self) -> set[int]:
        """The sessions whose running sequence is in memory, and is stored on the drive as well."""
        return self._engine.in_memory([running.sequence for running in self.running])

    def begin(self, job: Job) -> None:
        """Let a job join. Raises InputError for the name of a session that is in use."""
        if job.explain and self._engine.store:
            job.explained = job.explain(self._engine.store)
        begun = self._engine.begin(job.asked)
        sequence, cached = begun.sequence, begun.sequence.computed
        job.slot = min(set(range(self._limits.running)) - {running.job.slot for running in self.running})
        self._metrics.resumes.labels(begun.resume).inc()
        self._metrics.prompt_tokens.inc(len(job.prompt))
        self._metrics.cached_tokens.inc(cached)
        alone = self._engine.why_alone(sequence)
        if alone and not self._said:
            log.warning("sequences do not share decode steps: %s", alone)
            self._said = True
        generator = torch.Generator().manual_seed(job.sampling.seed)
        running = Running(
            job,
            sequence,
            cached,
            begun.resume,
            list(job.prompt),
            generator,
            not alone,
            self._drafts(),
            sequence.removed,
        )
        self.running.append(running)

    def turn(self) -> None:
        """Advance every sequence. A failed command ends only the sequence that needs it. Raises TargetError."""
        for running in list(self.running):
            if running.job.cancelled.is_set():
                self._metrics.cancelled.inc()
                self._end(running)
            elif late := running.job.late:
                self._end(running, late)
        decoding = [running for running in self.running if not running.in_prompt]
        shared = [running for running in decoding if running.shares]
        for first in range(0, len(shared), self._limits.batch):
            self._decode(shared[first : first + self._limits.batch])
        for running in decoding:
            if not running.shares:
                self._decode([running])
        prompt = next((running for running in self.running if running.in_prompt), None)
        if prompt is not None:
            self._prefill(prompt)

    def _decode(self, several: Sequence[Running]) -> None:
        """One decode step of each, in one call if there are several."""
        began = time.perf_counter()
        self._metrics.batch.observe(len(several))
        alone, drafted = list(several), [running.draft() for running in several]
        if len(several) > 1 or drafted[0]:
            alone = self._together(several, drafted)
        for running in alone:
            logits = self._call(running, [running.tokens[-1]])
            if logits is not None:
                self._take(running, logits)
        self._metrics.step.observe(time.perf_counter() - began)

    def _together(self, several: Sequence[Running], drafted: Sequence[list[int]]) -> list[Running]:
        """Advance all in one call, which also verifies what was drafted. Returns those to advance alone, where each
        error is attributed to its sequence.

        A call that is not supported is not tried again.
        """
        tokens = [[running.tokens[-1], *more] for running, more in zip(several, drafted, strict=True)]
        try:
            logits, failed = self._engine.step([running.sequence for running in several], tokens)
        except Exception as error:
            for running in several:
                running.shares = not isinstance(error, UnsupportedError)
            log.warning("a decode step of %d sequences is repeated one by one: %s", len(several), error)
            self._metrics.repeated.inc()
            return list(several)
        of_each = logits.split([len(own) for own in tokens])
        for number, (running, own, more) in enumerate(zip(several, of_each, drafted, strict=True)):
            if number not in failed:
                self._take(running, own, more)
        return [several[number] for number in failed]

    def _prefill(self, running: Running) -> None:
        """Compute the next chunk of a prompt; behind its last one, choose the first token. Prompts take turns."""
        job, computed, prompt = running.job, running.computed, running.job.prompt
        size = self._limits.chunk if running.sequence.in_parts else 0
        if job.computes_chances:
            size = min(size or _SCORED, _SCORED)
        chunk = prompt[computed : computed + size] if size else prompt[computed:]
        logits = self._score(running, chunk) if job.computes_chances else self._call(running, chunk)
        if logits is None:
            return
        self._metrics.chunks.inc()
        if running.computed < len(prompt):
            self.running.remove(running)  # the next prompt's turn
            self.running.append(running)
            return
        running.resume = self._engine.strategy(running.sequence) or running.resume
        self._metrics.first_token.observe(time.perf_counter() - job.arrived)
        if job.followers:
            self._share(running)
        scored = job.leader.scored if job.leader and job.leader.scored else job.scored
        job.tell(Prompt(running.cached, running.resume, scored))
        if job.new_tokens:
            self._take(running, logits)
        else:
            self._end(running)

    def _share(self, running: Running) -> None:
        """Let the other choices of a request find the prompt that was computed. Raises TargetError."""
        job = running.job
        try:
            self._engine.share(running.sequence, job.prompt, job.tenant, job.followers)
        except CommandError as error:
            log.warning("a prompt is computed again for each choice: %s", error)

    def _score(self, running: Running, tokens: list[int]) -> torch.Tensor | None:
        """As `_call`, for the next tokens of a prompt: `job.scored` has their chances then."""
        job, before = running.job, running.last_logits
        found = self._call(running, tokens, every=True)
        if found is None:
            return None
        for place, token in enumerate(tokens):
            behind = before if place == 0 else found[place - 1 : place]
            job.scored.append(Chances.first(token) if behind is None else Chances.of(behind, token, job.chances or 0))
        running.last_logits = found[-1:]
        return running.last_logits

    def _call(self, running: Running, tokens: list[int], *, every: bool = False) -> torch.Tensor | None:
        """Logits [1, vocabulary] behind `tokens`, or behind `every` one of them; None if the call failed and the
        sequence has ended.
        """
        in_prompt = running.in_prompt and running.cached == 0 and running.computed > 0
        try:
            return self._engine.compute(running.sequence, tokens, len(tokens) if every else 1, in_prompt=in_prompt)
        except TargetError:
            raise
        except Exception as error:
            self._fail(running, error)
            return None

    def _take(self, running: Running, logits: torch.Tensor, drafted: Sequence[int] = ()) -> None:
        """Choose tokens from logits [1 or more, vocabulary] and tell the client: the next one, and each one behind it
        as long as they are those that were drafted. After the last one, the sequence ends.
        """
        accepted, ends, error = 0, False, None
        for row, expected in zip(logits.split(1), [*drafted, None], strict=True):
            try:
                token = running.next(row)
            except Exception as reason:  # nothing of it touches the drive or another sequence
                if not isinstance(reason, GrammarError):
                    log.warning("a token could not be chosen: %s", reason)
                ends, error = True, reason
                break
            running.tokens.append(token.number)
            self._metrics.new_tokens.inc()
            self._metrics.rate.add(1)
            running.job.tell(token)
            ends = running.is_last(token)
            if ends or token.number != expected:
                break
            accepted += 1
        if (not drafted or self._verified(running, accepted, len(drafted))) and ends:
            self._end(running, error)

    def _verified(self, running: Running, accepted: int, drafted: int) -> bool:
        """Let the sequence forget the drafted tokens that were not accepted. False if that failed: it has ended."""
        if running.drafts is not None:
            running.drafts.seen(accepted, drafted)
            self._metrics.drafted.labels(running.drafts.kind).inc(drafted)
            self._metrics.accepted.labels(running.drafts.kind).inc(accepted)
        try:
            self._engine.verified(running.sequence, drafted - accepted)
        except TargetError:
            raise
        except Exception as error:
            self._fail(running, error)
            return False
        return True

    def _fail(self, running: Running, error: Exception) -> None:
        """A sequence cannot go on."""
        log.warning("a generation failed: %s", error)
        self.running.remove(running)
        self._engine.drop(running.sequence)
        running.job.tell(End(error))

    def _end(self, running: Running, error: Exception | None = None) -> None:
        """Save what was computed, and end the sequence."""
        self.running.remove(running)
        number, removed, unread = None, running.sequence.removed, running.sequence.unread()
        self._metrics.removed_tokens.inc(removed - running.removed_before)
        if running.computed:
            number = self._engine.put(running.sequence, running.tokens, running.job.tenant)
        else:
            self._engine.drop(running.sequence)
        if number is not None:
            self.slots[running.job.tenant, running.job.slot] = number
        running.job.tell(End(error, number, removed, unread))
