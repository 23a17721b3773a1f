"""A server of several models, from its options to the end of the process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.generation.offered import Offered
from kvdrive.generation.places import find
from kvdrive.llama.choice import file_of, takes_llama
from kvdrive.server.router.app import application
from kvdrive.server.router.forwarding import Asked, fetched
from kvdrive.server.router.memory import free_bytes, weight_bytes
from kvdrive.server.router.metrics import is_busy
from kvdrive.server.router.models import Bounds, Loaded, LoadError, Models
from kvdrive.server.router.process import ModelProcess
from kvdrive.server.router.worker import Work
from kvdrive.server.serving import base_of, bind, serve
from kvdrive.targets.addresses import is_address
from kvdrive.targets.opening import drive_folder


@dataclass
class Offering:
    """See `models.Offer`. `work`: of its process."""

    name: str
    work: Work

    def bytes(self) -> int:
        """See Offer."""
        model = self.work.config.model
        try:
            llama = takes_llama(self.work.runtime, model.model)
            path = file_of(model.model) if llama else find(model.model)
            return weight_bytes(path, model.dtype, as_stored=llama)
        except (InputError, OSError) as error:
            raise LoadError(str(error)) from error

    async def load(self) -> ModelProcess:
        """See Offer. What its drives hold is forgotten once at most, where the owner has said so."""
        process = await ModelProcess.started(self.work)
        self.work = replace(self.work, config=self.work.config.changed(format=False))
        return process

    async def answers(self, loaded: Loaded) -> bool:
        """See Offer."""
        status, text = await fetched(loaded.place, Asked("GET", "/metrics", []))
        return status == 200 and is_busy(text)


def run(several: Sequence[Offered], work: Work, memory: int, idle: float) -> None:
    """Serve until a signal comes. `work`: of a process, but for its model, drives and place. `memory`, `idle`: see
    Bounds. Raises InputError.
    """
    serving = work.serving
    listening = bind(*serving.address)
    with _drives(work.config) as folder, tempfile.TemporaryDirectory(prefix="kvdrive-") as sockets:
        own = replace(serving.allowed, open_metrics=True, origins=())  # a process has one client, which is this one
        offers = []
        for number, one in enumerate(several):
            config = work.config.changed(model=one.model)
            if folder is not None:
                config = config.changed(folder=folder / one.name)
            answers = replace(serving, name=one.name, allowed=own)
            place = Path(sockets) / str(number)
            offers.append(Offering(one.name, replace(work, config=config, serving=answers, place=place)))
        bounds = Bounds(memory, idle, serving.limits.waiting, free_bytes)
        app = application(Models(offers, bounds), serving.allowed, serving.limits.running)
        names = ", ".join(one.name for one in several)
        print(f"serving {names} at {base_of(serving.address, listening)}", flush=True)
        serve(app, listening)


@contextmanager
def _drives(config: RunConfig) -> Iterator[Path | None]:
    """The folder in which each model has one of its own; None for drives at an address, which models share."""
    if is_address(config.target.target):
        yield None
        return
    with drive_folder(config.target.folder) as folder:
        yield folder
