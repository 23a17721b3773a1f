"""The server's engine over an attached model of transformers (see `engine`)."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Several
from contextlib import AbstractContextManager, contextmanager

import torch

from kvdrive.config.run import RunConfig
from kvdrive.errors import UnsupportedError
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.prefix.open_session import OpenSession
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.request import Request
from kvdrive.prefix.store import PrefixStore
from kvdrive.server.engine import Begun
from kvdrive.server.finished import Finished, finished_in
from kvdrive.server.prefix_cache import PrefixCache
from kvdrive.targets.base import TargetStats
from kvdrive.targets.group import DriveGroup


class CachedSequence:
    """See `engine.Sequence`: the only row of a cache."""

    def __init__(self, cache: HfCache) -> None:
        self.cache = cache

    @property
    def computed(self) -> int:
        return int(self.cache.get_seq_length())

    @property
    def removed(self) -> int:
        return int(self.cache.batch.removed)

    @property
    def in_parts(self) -> bool:
        return bool(self.cache.batch.is_on_drives)

    def unread(self) -> dict[str, float] | None:
        found: dict[str, float] | None = self.cache.batch.statistics.unread_mass()
        return found


class TransformersEngine:
    """See `engine.Engine`. `finished`: where finished sequences are stored."""

    def __init__(self, checkpoint: Checkpoint, attachment: Attachment, drives: DriveGroup, finished: Finished) -> None:
        self._model = checkpoint.model
        self._attachment = attachment
        self._drives = drives
        self._finished = finished

    @property
    def store(self) -> PrefixStore | None:
        return self._finished.store if isinstance(self._finished, PrefixCache) else None

    @property
    def stored_count(self) -> int:
        return len(self._finished)

    def begin(self, request: Request) -> Begun[CachedSequence]:
        taken = self._finished.take(request)
        taken.cache.batch.statistics.measure_unread_anew()
        return Begun(CachedSequence(taken.cache), taken.resume)

    def why_alone(self, sequence: CachedSequence) -> str | None:
        return self._attachment.why_alone(sequence.cache)

    def compute(
        self, sequence: CachedSequence, tokens: Several[int], kept: int = 1, *, in_prompt: bool = False
    ) -> torch.Tensor:
        sequence.cache.batch.part.in_prompt = in_prompt
        with torch.no_grad():
            ids = torch.tensor([list(tokens)], device=self._model.device)
            output = self._model(ids, past_key_values=sequence.cache, use_cache=True, logits_to_keep=kept)
        sequence.cache.batch.part.in_prompt = False  # of the part that is there now
        return output.logits[0, -kept:].float().cpu()

    def step(self, sequences: Several[CachedSequence], tokens: Several[Several[int]]) -> tuple[torch.Tensor, list[int]]:
        return self._attachment.step_together([one.cache for one in sequences], tokens)

    def verified(self, sequence: CachedSequence, rejected: int) -> None:
        self._attachment.verified(sequence.cache, rejected)

    def strategy(self, sequence: CachedSequence) -> str | None:
        return self._finished.strategy(sequence.cache)

    def put(self, sequence: CachedSequence, tokens: list[int], tenant: str) -> int | None:
        return self._finished.put(tokens, sequence.cache, tenant)

    def share(self, sequence: CachedSequence, tokens: list[int], tenant: str, others: int) -> None:
        self._finished.share(tokens, sequence.cache, tenant, others)

    def drop(self, sequence: CachedSequence) -> None:
        self._finished.drop(sequence.cache)

    def unsaved(self, sequence: CachedSequence) -> int:
        return self._finished.unsaved(sequence.cache)

    def shrink(self, tokens: int) -> None:
        self._finished.shrink(tokens)

    def look_ahead(self, waiting: Several[Request]) -> None:
        self._finished.look_ahead(waiting)

    def in_memory(self, sequences: Several[CachedSequence]) -> set[int]:
        batches = [one.cache.batch for one in sequences]
        listeners = [one.listener for one in batches if not one.placement.drives_attend]
        return {one.number for one in listeners if isinstance(one, OpenSession) and one.number is not None}

    def figures(self) -> dict[str, float]:
        return self._finished.figures()

    def drive_stats(self) -> tuple[TargetStats, int | None]:
        return self._drives.stats(), self._drives.device_ns()


@contextmanager
def open_engine(
    checkpoint: Checkpoint,
    drives: AbstractContextManager[DriveGroup],
    config: RunConfig,
    idle: int,
    threads: int = 1,
    sessions: SessionOptions | None = None,
) -> Iterator[TransformersEngine]:
    """The engine of a checkpoint on `drives`, for one thread. `idle`: finished sequences that are stored at most.

    `sessions`: how they are stored beyond the process; None: they are not. Raises the errors of opening drives and
    attaching a model.
    """
    torch.set_num_threads(threads)  # counts for this thread only
    with drives as opened, attach(checkpoint.model, opened, config=config) as attachment:
        _require_drafts(attachment, config)
        yield TransformersEngine(
            checkpoint, attachment, opened, finished_in(checkpoint, attachment, config, idle, sessions)
        )


def _require_drafts(attachment: Attachment, config: RunConfig) -> None:
    """Raises UnsupportedError where tokens are to be drafted that the model cannot verify in shared steps."""
    asked = "assistant" if config.model.assistant else "lookup" if config.drafting.lookup else ""
    if asked and (reason := attachment.why_alone(attachment.cache())):
        raise UnsupportedError(f"`{asked}` does not go with this model: {reason}; leave it out")
