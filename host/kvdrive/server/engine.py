"""What the server asks of a model, whichever runtime computes it: text, sequences that share calls, and sessions.

`transformers_engine` fulfils it with an attached model of transformers, `kvdrive.llama.engine` with llama.cpp. How
tokens are chosen, what ends an answer, grammars, calls of tools and log probabilities are the server's own, over the
logits that an engine returns.
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from kvdrive.errors import KvdriveError
from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.prefix.index import Index
from kvdrive.prefix.lookup import Lookup
from kvdrive.prefix.request import Request
from kvdrive.prefix.stored import StoredSessions
from kvdrive.server.drafts import MakeDrafts
from kvdrive.server.jobs import Limits
from kvdrive.targets.base import TargetStats


class ServedModel(Protocol):
    """A loaded model. Any thread may call.

    `stop_ids`: tokens that end a text. `vocabulary`: the length of logits.
    """

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def stop_ids(self) -> frozenset[int]: ...

    @property
    def vocabulary(self) -> int: ...

    @property
    def bytes_per_token(self) -> int:
        """Of K and V on the drive; 0 where that is not known."""

    def close(self) -> None:
        """Release it, behind its engine."""


class ComputeError(KvdriveError):
    """A call of a model has failed. Its sequences are as they were before it."""


class Sequence(Protocol):
    """A sequence that an engine computes.

    `computed`: its tokens, those included that have left it; `removed`: these. `in_parts`: a prompt may be computed in
    several calls.
    """

    @property
    def computed(self) -> int: ...

    @property
    def removed(self) -> int: ...

    @property
    def in_parts(self) -> bool: ...

    def unread(self) -> dict[str, float] | None:
        """See Statistics.unread_mass; None where the engine does not count it for a sequence alone."""


class SessionStore(Protocol):
    """Stored sessions, for the paths that list, name and remove them."""

    @property
    def index(self) -> Index: ...

    @property
    def stored(self) -> StoredSessions: ...

    def lookup_of(self, tenant: str) -> Lookup:
        """What finds the sessions of a tenant."""


S = TypeVar("S", bound=Sequence)  # an engine's own kind of sequences


@dataclass(frozen=True)
class Begun(Generic[S]):
    """A sequence for a prompt, with the stored tokens of it. `resume`: the strategy for them: "attend" where they are,
    "load" into memory, "recompute" (that is faster), or "none" (nothing was stored).
    """

    sequence: S
    resume: str


class Engine(Protocol[S]):
    """Computes sequences and stores finished ones. Only the thread that has opened it calls: it owns model and drive.

    An implementer
    1. lets no sequence read the tokens of another one, except those that `begin` has found of the same tenant;
    2. leaves a sequence as it was where `compute` or `step` raises, so that others go on;
    3. raises TargetError only when the drives are gone: the server ends then. Of all else, one sequence ends;
    4. keeps tokens of a sequence from `begin` until `put` or `drop`, one of which is called once;
    5. stores no token of a step, in no session, before `verified` where the sequence had several in it.

    `store`: the sessions that outlive the process; None: there are none.
    """

    @property
    def store(self) -> SessionStore | None: ...

    @property
    def stored_count(self) -> int:
        """How many finished sequences are stored."""

    def begin(self, request: Request) -> Begun[S]:
        """A sequence with the stored tokens of a prompt, at most all but its last one, if that is faster.

        Raises InputError for a name that is in use, CommandError, TargetError.
        """

    def why_alone(self, sequence: S) -> str | None:
        """The reason why `step` does not take this sequence beside others; None: it does."""

    def compute(self, sequence: S, tokens: Several[int], kept: int = 1, *, in_prompt: bool = False) -> torch.Tensor:
        """Logits float32 [kept, vocabulary] behind the last `kept` of `tokens`, which follow those of the sequence.

        `in_prompt`: the tokens before these are of the same prompt, and were not stored.
        """

    def step(self, sequences: Several[S], tokens: Several[Several[int]]) -> tuple[torch.Tensor, list[int]]:
        """Compute the next tokens of each sequence, one or more, in one call. Returns logits float32 [all of these
        tokens, vocabulary] in their order, and the numbers of the sequences for which the call failed at its end: it is
        undone for them, and may be repeated with each alone.
        """

    def verified(self, sequence: S, rejected: int) -> None:
        """Remove the last `rejected` tokens of a sequence that had several in the last step; the others stay. Raises
        CommandError, ComputeError, TargetError.
        """

    def strategy(self, sequence: S) -> str | None:
        """The resume strategy of a running sequence, where it is another one than `begin` said."""

    def put(self, sequence: S, tokens: list[int], tenant: str) -> int | None:
        """Store a finished sequence. Returns the number of its session; None if it has none."""

    def share(self, sequence: S, tokens: list[int], tenant: str, others: int) -> None:
        """Store what a running sequence has: `others` begin with these tokens. Raises CommandError, TargetError."""

    def drop(self, sequence: S) -> None:
        """Forget a sequence that has failed."""

    def unsaved(self, sequence: S) -> int:
        """Tokens of a running sequence that are not counted as stored."""

    def shrink(self, tokens: int) -> None:
        """Evict finished sequences until the others leave room for `tokens` tokens."""

    def look_ahead(self, waiting: Several[Request]) -> None:
        """The requests that wait now, the next one first. Raises TargetError."""

    def in_memory(self, sequences: Several[S]) -> set[int]:
        """The sessions of those sequences that are in memory now and are stored as well."""

    def figures(self) -> dict[str, float]:
        """Counters and sizes of the store for the metrics; empty without one."""

    def drive_stats(self) -> tuple[TargetStats, int | None]:
        """The drives' counters, and their modelled time in ns; None where time is real."""


class Runtime(Protocol):
    """A model that a server has loaded, before its engine is opened.

    `drafts`: of each sequence, as its options say. `name`: what clients call it, unless the owner names it. `context`:
    tokens of a prompt with its answer at most. `trims`: older tokens are removed from a longer text. `most_tokens`:
    those of all sequences together that the drives have room for; None: drives are made as large as it takes.
    """

    @property
    def model(self) -> ServedModel: ...

    @property
    def drafts(self) -> MakeDrafts: ...

    @property
    def name(self) -> str: ...

    @property
    def context(self) -> int: ...

    @property
    def trims(self) -> bool: ...

    @property
    def most_tokens(self) -> int | None: ...

    def engine(self, limits: Limits) -> AbstractContextManager[Engine[Any]]:
        """Its engine, for the thread that opens it. Raises the errors of opening drives."""
