"""Requests as the scheduler sees them, what it answers, and how much it does at the same time."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kvdrive.choices import PREFILL_CHUNK
from kvdrive.errors import KvdriveError
from kvdrive.generation.rules import Rules
from kvdrive.generation.sampling import Sampling
from kvdrive.prefix.request import Request
from kvdrive.server.chances import Chances
from kvdrive.server.grammar import Grammar


@dataclass(frozen=True)
class Limits:
    """The most requests of a tenant that wait, sequences that run at once, and finished sequences that are stored; 0:
    none.

    `tokens`: room on the drive for all sequences together. A request counts with the most tokens it may generate.
    `batch`: sequences whose decode steps share a call of the model. `chunk`: tokens of a prompt that are computed
    between two decode steps; 0: all of them. `context`: tokens of a sequence that are held at once; older ones
    are removed; 0: none are.
    """

    tokens: int
    waiting: int = 64
    running: int = 4
    idle: int = 8
    batch: int = 16
    chunk: int = PREFILL_CHUNK
    context: int = 0

    def room(self, job: Job) -> int:
        """The most tokens of a job that are on the drive at the same time."""
        return min(job.most_tokens, self.context or job.most_tokens)


class QueueFull(KvdriveError):
    """The queue of waiting requests is full."""


class DeadlinePassed(KvdriveError):
    """The time that a request was given is over."""


@dataclass(frozen=True)
class Prompt:
    """The prompt is computed; `cached` tokens of it were on the drive. `resume`: see `engine.Begun`.

    `chances`: how likely each token of it was, if the job asked.
    """

    cached: int
    resume: str = "none"
    chances: Sequence[Chances] = ()


@dataclass(frozen=True)
class Token:
    """A new token.

    `ends`: it ends the answer and is no part of it. `completes`: it ends the answer, whose grammar has no more.
    """

    number: int
    ends: bool = False
    completes: bool = False
    chances: Chances | None = None


@dataclass(frozen=True)
class End:
    """The generation is over; `error` says why it failed. `session`: the number of its stored session, if it has one.

    `removed`: tokens that have left the sequence because the positions were used up. `unread`: see
    Statistics.unread_mass.
    """

    error: Exception | None = None
    session: int | None = None
    removed: int = 0
    unread: dict[str, float] | None = None


Event = Prompt | Token | End
_asks = count()


@dataclass(eq=False)
class Job:
    """A request, or one of its choices. `notify` is called in the scheduler's thread: a `Prompt`, each `Token`, and an
    `End`. Any thread may set `cancelled` at any time.

    `tenant`: whose it is: it finds what this tenant has stored, and nothing else. `session`: the name under which its
    sequence is saved, or "". `rules` and `grammar`: what its answer keeps to. `chances`: how many likely tokens are
    told beside each of its own; None: not even its own. `slot`: where it ran, from 0 on. `seconds`: from its arrival
    until it ends, whatever it has by then.

    `ask`: jobs of one request have the same number. `leader`: the job of the same request with the same prompt that
    computes it; this one begins once that is done, and finds it stored. `followers`: how many have this one as their
    leader. `scores`: the chances of the prompt's tokens are wanted; they are in `scored` once it is computed.
    `prompt_done`: the prompt is computed, or never will be by this job. `explain`: is called with the session store, in
    the scheduler's thread, before its sequence begins; `explained`: what it has returned.
    """

    prompt: list[int]
    new_tokens: int
    sampling: Sampling
    notify: Callable[[Event], None]
    cancelled: threading.Event = field(default_factory=threading.Event)
    arrived: float = field(default_factory=time.perf_counter)
    session: str = ""
    tenant: str = ""
    rules: Rules = field(default_factory=Rules)
    grammar: Grammar | None = None
    chances: int | None = None
    slot: int = 0
    seconds: float = math.inf
    ask: int = field(default_factory=lambda: next(_asks))
    leader: Job | None = None
    followers: int = 0
    scores: bool = False
    scored: list[Chances] = field(default_factory=list)
    prompt_done: bool = False
    explain: Callable[[Any], Any] | None = None
    explained: Any = None

    def tell(self, event: Event) -> None:
        """Notify whoever asked, in the scheduler's thread."""
        self.prompt_done = self.prompt_done or not isinstance(event, Token)
        self.notify(event)

    @property
    def may_begin(self) -> bool:
        """False while another job computes its prompt."""
        return self.leader is None or self.leader.prompt_done

    @property
    def computes_chances(self) -> bool:
        """True if the chances of the prompt's tokens are wanted and no other job has them."""
        return self.scores and not (self.leader and self.leader.scored)

    @property
    def asked(self) -> Request:
        """What it asks of the prefix store: nothing, where the chances of each token have to be computed."""
        if self.computes_chances:
            return Request((), "", self.most_tokens, self.tenant)
        return Request(tuple(self.prompt), self.session, self.new_tokens, self.tenant)

    @property
    def most_tokens(self) -> int:
        """The tokens of the prompt and the longest answer."""
        return len(self.prompt) + self.new_tokens

    @property
    def late(self) -> DeadlinePassed | None:
        """The error of a request whose time is over; None before that."""
        if time.perf_counter() - self.arrived <= self.seconds:
            return None
        return DeadlinePassed(f"the answer was not complete after {self.seconds:g} s: allow more, or ask for less")


def next_job(waiting: Sequence[Job], running: Sequence[Job]) -> Job | None:
    """The job that begins next: the first in the order of arrival of the tenant that has the fewest running.

    None if each waits for the prompt of another one.
    """
    shares = Counter(job.tenant for job in running)
    return min((job for job in waiting if job.may_begin), key=lambda job: shares[job.tenant], default=None)
