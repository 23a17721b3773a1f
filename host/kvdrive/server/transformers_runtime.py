"""A checkpoint that transformers computes, for the server."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from dataclasses import replace

from kvdrive.config.run import RunConfig
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.prefix.options import SessionOptions
from kvdrive.server.assistant import drafts_of
from kvdrive.server.jobs import Limits
from kvdrive.server.transformers_engine import TransformersEngine, open_engine
from kvdrive.targets.opening import open_drives
from kvdrive.weights.opening import load_from

_SPARE = 2  # extra capacity for partly filled pages and collection


class TransformersRuntime:
    """See `engine.Runtime`. Raises InputError."""

    most_tokens = None

    def __init__(self, config: RunConfig, sessions: SessionOptions) -> None:
        self.model: Checkpoint = load_from(config)
        self.drafts = drafts_of(config, self.model)
        self._config, self._sessions = config, sessions

    @property
    def name(self) -> str:
        return self.model.path.name

    @property
    def context(self) -> int:
        return self._config.limits.context or self.model.context

    @property
    def trims(self) -> bool:
        return self._config.limits.overflow == "trim"

    def engine(self, limits: Limits) -> AbstractContextManager[TransformersEngine]:
        """See Runtime. The drives have room for so many tokens."""
        target, shape = self._config.target, self.model.shape
        threads = target.threads or os.cpu_count() or 1
        needed = _SPARE * limits.tokens * shape.bytes_per_token
        capacity = max(target.capacity_bytes, needed)
        options = replace(target, threads=threads, capacity_bytes=capacity, needed_bytes=needed, group=shape.group)
        drives = open_drives(options, None if limits.idle else _say)
        return open_engine(self.model, drives, self._config, limits.idle, threads, self._sessions)


def _say(sentence: str) -> None:
    print(f"kvdrive: {sentence}", file=sys.stderr)
