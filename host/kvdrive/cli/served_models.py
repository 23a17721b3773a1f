"""What `kvdrive serve` does with the models that it is given: one is loaded at once, several when they are named."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kvdrive.cli.llama import chosen, refuse, served
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.generation.offered import Offered, home_of, offered
from kvdrive.llama.choice import Runtime, takes_llama
from kvdrive.prefix.options import SessionOptions
from kvdrive.targets.smartssd import is_smartssd
from kvdrive.waiting import waiting_for

if TYPE_CHECKING:
    from kvdrive.server.jobs import Limits
    from kvdrive.server.serving import Serving
    from kvdrive.server.settings import Allowed


@dataclass(frozen=True)
class Wanted:
    """`given`: values of `--model`. `name`: for clients, "": that of a folder or file. `typed`: options of a run that
    were given. `memory`: bytes for the weights of all loaded models, 0: what is free. `idle`: seconds until one is
    unloaded.
    """

    given: list[str]
    name: str
    config: RunConfig
    runtime: Runtime
    typed: frozenset[str]
    sessions: SessionOptions
    memory: int = 0
    idle: float = math.inf

    @cached_property
    def models(self) -> list[Offered]:
        """Raises InputError."""
        found = offered(self.given)
        if not self.name:
            return found
        if len(found) > 1:
            raise InputError("--name is for one model: several are called as their folders and files are")
        return [replace(found[0], name=self.name)]

    @property
    def several(self) -> bool:
        """True if models are loaded when they are asked for, and unloaded again."""
        return len(self.models) > 1 or self.memory > 0 or not math.isinf(self.idle)

    def check(self) -> None:
        """Raises InputError for what cannot be served, before anything is imported or loaded."""
        for one in self.models:
            if takes_llama(self.runtime, one.model):
                refuse({"daily_writes": self.sessions.daily_bytes})
        if self.several and is_smartssd(self.config.target.target):
            raise InputError("a SmartSSD serves one model that stays: give one `model`, or take another `target`")


def serve_models(
    wanted: Wanted, address: tuple[str, int], limits: Limits, allowed: Allowed, prompt_tokens: int
) -> None:
    """Serve until a signal comes; see `Serving` for the rest. Raises InputError, UnsupportedError, TargetError."""
    from kvdrive.server.serving import Serving, run

    serving = Serving(address, limits, wanted.name, prompt_tokens, allowed)
    if wanted.several:
        return _serve_several(wanted, serving)
    from kvdrive.server.transformers_runtime import TransformersRuntime

    (only,) = wanted.models
    folder = home_of(wanted.config.target.folder, only.name)
    config = wanted.config.changed(model=only.model, folder=folder)
    if chosen(wanted.runtime, config):
        return run(served(config, wanted.typed, wanted.sessions, serving.limits.running), serving)
    with waiting_for(f"loading {only.model}"):
        loaded = TransformersRuntime(config, wanted.sessions)
    run(loaded, serving)


def _serve_several(wanted: Wanted, serving: Serving) -> None:
    from kvdrive.server.router.serving import run
    from kvdrive.server.router.worker import Work

    work = Work(wanted.config, wanted.runtime, wanted.typed, wanted.sessions, serving)
    run(wanted.models, work, wanted.memory, wanted.idle)
