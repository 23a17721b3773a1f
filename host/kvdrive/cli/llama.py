"""What commands do where llama.cpp computes the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from kvdrive.config.run import RunConfig
from kvdrive.config.text import OPTIONS, flag_of
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.llama.choice import Runtime, file_of, takes_llama
from kvdrive.waiting import IMPORTS, waiting_for

if TYPE_CHECKING:
    from kvdrive.llama.context import Context
    from kvdrive.llama.conversation import Conversation
    from kvdrive.llama.model import Model
    from kvdrive.llama.runtime import LlamaRuntime
    from kvdrive.llama.sessions import Sessions
    from kvdrive.prefix.options import SessionOptions

RuntimeOption = Annotated[
    Runtime,
    typer.Option(
        help="what computes the model. llama.cpp: .gguf files, weights as they are there; transformers: everything, "
        ".gguf files dequantised; auto: llama.cpp for .gguf files if `make get WHAT=llama-plugin` has installed it",
        rich_help_panel="Model",
    ),
]


def chosen(runtime: Runtime, config: RunConfig) -> Path | None:
    """The file that llama.cpp computes; None: transformers computes the model. Raises InputError."""
    return file_of(config.model.model) if takes_llama(runtime, config.model.model) else None


def refuse(asked: Mapping[str, object]) -> None:
    """Raises InputError for the first option of a command that is asked for and that llama.cpp does not serve."""
    for name, value in asked.items():
        if value:
            raise InputError(f"llama.cpp does not serve `{name}`: leave it out, or take `runtime=transformers`")


@contextmanager
def conversation_in(config: RunConfig, given: frozenset[str], folder: Path) -> Iterator[Conversation]:
    """The conversation in `folder`, its K and V in the drive there. `given`: see `opened`."""
    from kvdrive.llama.context import Context
    from kvdrive.llama.conversation import Conversation
    from kvdrive.llama.opening import room_of

    console = Console(stderr=True)
    with (
        opened(config.changed(folder=folder), given, console) as model,
        Context(model, room_of(model, config, 0)) as context,
        kept_sessions(context, config, console) as sessions,
    ):
        yield Conversation(context.sequences[0], folder, sessions)


@contextmanager
def kept_sessions(context: Context, config: RunConfig, console: Console) -> Iterator[Sessions | None]:
    """The sessions on the model's drive. None, and one line that says why, where its cache cannot be kept."""
    with waiting_for(IMPORTS, console):
        from kvdrive.llama.session_store import open_sessions

    with ExitStack() as opened:
        try:
            sessions = opened.enter_context(open_sessions(context, config))
        except UnsupportedError as error:
            say(console, f"K and V end with this process: {error}")
            sessions = None
        yield sessions


def served(config: RunConfig, given: frozenset[str], sessions: SessionOptions, running: int) -> LlamaRuntime:
    """What a server of up to `running` sequences at once computes. `given`: see `opened`."""
    from kvdrive.llama.runtime import LlamaRuntime

    console = Console(stderr=True)
    with waiting_for(f"loading {config.model.model}", console):
        runtime = LlamaRuntime(config, given, sessions, running)
    _say_what_computes(runtime.model.loaded, console)
    return runtime


@contextmanager
def opened(config: RunConfig, given: frozenset[str], console: Console) -> Iterator[Model]:
    """The model, and one line that says what computes it. `given`: the options of a run that were typed."""
    from kvdrive.llama.opening import open_model

    with ExitStack() as kept:
        with waiting_for(f"loading {config.model.model}", console):
            model = kept.enter_context(open_model(config, given))
        _say_what_computes(model, console)
        yield model


def typed(running: typer.Context) -> frozenset[str]:
    """The fields of a run whose flags were given to a command."""
    given = {name for name in running.params if is_given(running, name)}
    return frozenset(name for name in OPTIONS if flag_of(name) in given)


def is_given(running: typer.Context, name: str) -> bool:
    """True if an option of a command was typed, or comes from the environment."""
    source = running.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def _say_what_computes(model: Model, console: Console) -> None:
    say(console, f"llama.cpp {model.functions.release} computes {model.file.name} ({model.description}, as stored)")


def say(console: Console, sentence: str) -> None:
    """Print a sentence as it is."""
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)
