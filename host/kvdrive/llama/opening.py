"""Opens a model as a run's options say."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from kvdrive import abi
from kvdrive.config.resolve import resolve
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.llama import libraries
from kvdrive.llama.choice import file_of
from kvdrive.llama.model import Model, Settings
from kvdrive.llama.options import drive_variables, require_served
from kvdrive.targets.opening import drive_folder


@contextmanager
def open_model(config: RunConfig, typed: Collection[str] = ()) -> Iterator[Model]:
    """The model of `config` with its drive, released at the end; `typed`: options that were given, by name.

    Raises InputError, UnsupportedError, TargetError.
    """
    require_served(config, typed)
    resolve(config.changed(target="cpu"))  # the plugin's drive is a file's own disk, or that of a server
    file, found = file_of(config.model.model), libraries.find()
    threads = config.target.threads or os.cpu_count() or 1
    config = config.changed(threads=threads)
    with drive_folder(config.target.folder) as folder:
        settings = Settings(drive_variables(config, folder, typed), threads)
        with Model(file, found, settings) as model:
            yield model


@contextmanager
def open_stock(config: RunConfig) -> Iterator[Model]:
    """The same model without the plugin, its K and V in memory. Raises InputError, UnsupportedError."""
    threads = config.target.threads or os.cpu_count() or 1
    with Model(file_of(config.model.model), libraries.find(), Settings(None, threads)) as model:
        yield model


def room_of(model: Model, config: RunConfig, needed: int) -> int:
    """Tokens that a text may hold: `needed`, or as many as the context has. Raises InputError for more than these."""
    most = min(config.limits.context or model.positions, abi.MAX_TOKENS)
    if needed > most:
        raise InputError(
            f"{needed} tokens, the new ones counted, exceed the {most} of {model.file.name}'s context: shorten "
            "the prompt (`prompt_tokens`), or generate less"
        )
    return needed or most
