"""The server's engine over llama.cpp (see `server.engine`): sequences of one context, kept on the plugin's drive."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from contextlib import ExitStack, contextmanager

import torch

from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.llama.context import Context, Logits, Sequence
from kvdrive.llama.kept_store import KeptStore
from kvdrive.llama.model import Model
from kvdrive.llama.places import Places
from kvdrive.llama.session_store import open_sessions
from kvdrive.llama.sessions import Sessions
from kvdrive.llama.target import stats_of
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.request import Request
from kvdrive.server.engine import Begun, ComputeError
from kvdrive.server.jobs import Limits
from kvdrive.server.store_figures import figures
from kvdrive.targets.base import TargetStats

log = logging.getLogger(__name__)


class RunningSequence:
    """See `server.engine.Sequence`. `request`: what it answers."""

    removed = 0
    in_parts = True

    def __init__(self, sequence: Sequence, request: Request) -> None:
        self.sequence, self.request = sequence, request

    @property
    def computed(self) -> int:
        return len(self.sequence.tokens)

    def unread(self) -> None:
        """The plugin counts that for all sequences together."""


class LlamaEngine:
    """See `server.engine.Engine`. `sessions`: those of the drive; None: finished texts stay in the context as far as it
    has room, if it `holds` them.
    """

    def __init__(self, context: Context, sessions: Sessions | None, *, holds: bool) -> None:
        self._context, self._sessions = context, sessions
        self._places = Places(context.sequences, holds=holds and sessions is None)
        self._running: list[RunningSequence] = []
        assert context.model.plugin is not None, "K and V are in a drive"
        self._plugin = context.model.plugin

    @property
    def store(self) -> KeptStore | None:
        return self._sessions.store if self._sessions else None

    @property
    def stored_count(self) -> int:
        return self.store.index.count() if self.store else self._places.held

    def begin(self, request: Request) -> Begun[RunningSequence]:
        if request.name and any(_same_name(request, one.request) for one in self._running):
            raise InputError(f"session '{request.name}' is in use: wait for its answer, or choose another name")
        sequence = self._places.take(request)
        try:
            if self._sessions:
                self._sessions.of(sequence).resume(request)
        except BaseException:
            self._places.drop(sequence)
            raise
        self._running.append(RunningSequence(sequence, request))
        return Begun(self._running[-1], "attend" if sequence.tokens else "none")

    def why_alone(self, sequence: RunningSequence) -> None:
        """All may share steps."""

    def compute(
        self, sequence: RunningSequence, tokens: Several[int], kept: int = 1, *, in_prompt: bool = False
    ) -> torch.Tensor:
        found = self._called(lambda: sequence.sequence.extend(tokens, every=kept > 1))
        return torch.from_numpy(found[-kept:] if kept > 1 else found[None])

    def step(
        self, sequences: Several[RunningSequence], tokens: Several[Several[int]]
    ) -> tuple[torch.Tensor, list[int]]:
        several = [one.sequence for one in sequences]
        return torch.from_numpy(self._called(lambda: self._context.step(several, tokens))), []

    def verified(self, sequence: RunningSequence, rejected: int) -> None:
        if rejected:
            left = sequence.computed - rejected
            sequence.sequence.truncate(left)
            if sequence.computed != left:
                raise ComputeError("llama.cpp cannot remove drafted tokens of this model: leave `lookup` out")

    def strategy(self, sequence: RunningSequence) -> None:
        """What `begin` said stays true."""

    def put(self, sequence: RunningSequence, tokens: list[int], tenant: str) -> int | None:
        number = self._keep(sequence)
        self._running.remove(sequence)
        self._places.put(sequence.sequence, tenant)
        return number

    def share(self, sequence: RunningSequence, tokens: list[int], tenant: str, others: int) -> None:
        self._keep(sequence)

    def drop(self, sequence: RunningSequence) -> None:
        self._running.remove(sequence)
        self._places.drop(sequence.sequence)

    def unsaved(self, sequence: RunningSequence) -> int:
        return sequence.computed

    def shrink(self, tokens: int) -> None:
        if self.store:
            self.store.context.evictor.shrink(max(tokens, 0) * self.store.bytes_per_token)
        else:
            self._places.shrink(tokens)

    def look_ahead(self, waiting: Several[Request]) -> None:
        """Evicts none of the sessions that these requests go on with before others."""
        if self.store:
            known = [self.store.lookup_of(one.tenant).longest_prefix(one.prompt[:-1]) for one in waiting]
            self.store.context.evictor.policy.look_ahead([entry.id for _, entry in known if entry is not None])

    def in_memory(self, sequences: Several[RunningSequence]) -> set[int]:
        return set()

    def figures(self) -> dict[str, float]:
        return figures(self.store.stored, self.store.context.governor) if self.store else {}

    def drive_stats(self) -> tuple[TargetStats, int | None]:
        return stats_of(self._plugin), None

    def close(self) -> None:
        """Keep what runs."""
        for one in self._running:
            self._keep(one)

    def _keep(self, sequence: RunningSequence) -> int | None:
        if self._sessions is None:
            return None
        return self._sessions.of(sequence.sequence).keep(sequence.request.name)

    def _called(self, work: Callable[[], Logits]) -> Logits:
        """A call of llama.cpp. Raises ComputeError where it fails, TargetError where the drive is gone."""
        try:
            return work()
        except TargetError as error:
            stats_of(self._plugin)
            raise ComputeError(str(error)) from error


@contextmanager
def open_engine(
    model: Model, room: int, limits: Limits, config: RunConfig, sessions: SessionOptions
) -> Iterator[LlamaEngine]:
    """The engine of a model whose sequences have `room` tokens, for one thread. Raises InputError, UnsupportedError,
    TargetError.
    """
    torch.set_num_threads(model.settings.threads)  # counts for this thread only
    with Context(model, room, limits.running) as context, ExitStack() as opened:
        kept = None
        if limits.idle:
            try:
                kept = opened.enter_context(open_sessions(context, config, sessions))
            except UnsupportedError as error:
                log.warning("sessions do not survive the server: %s", error)
        engine = LlamaEngine(context, kept, holds=limits.idle > 0)
        opened.callback(engine.close)
        yield engine


def _same_name(one: Request, other: Request) -> bool:
    return (one.name, one.tenant) == (other.name, other.tenant)
