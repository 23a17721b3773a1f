"""What `kvdrive generate` and `kvdrive chat` do where llama.cpp computes the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from kvdrive.config.run import RunConfig
from kvdrive.config.text import OPTIONS, flag_of
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation.sampling import Sampling
from kvdrive.llama.choice import Runtime, file_of, takes_llama
from kvdrive.waiting import IMPORTS, progress, waiting_for

if TYPE_CHECKING:
    from kvdrive.llama.context import Context
    from kvdrive.llama.conversation import Conversation
    from kvdrive.llama.model import Model
    from kvdrive.llama.sessions import Sessions

RuntimeOption = Annotated[
    Runtime,
    typer.Option(
        help="what computes the model. llama.cpp: .gguf files, weights as they are there; transformers: everything, "
        ".gguf files dequantised; auto: llama.cpp for .gguf files if `make get WHAT=llama-plugin` has installed it",
        rich_help_panel="Model",
    ),
]


@dataclass(frozen=True)
class Wanted:
    """What `kvdrive generate` is asked for, beside the options of a run. `typed`: those of them that were given."""

    typed: frozenset[str]
    prompt: str
    session: str
    prompt_tokens: int
    new_tokens: int
    sampling: Sampling
    ignore_stop: bool
    verbose: bool
    as_json: bool

    def options(self, config: RunConfig) -> dict[str, Any]:
        """All options as JSON takes them."""
        named = {name: config.values()[name] for name in ("model", "threads", "attention", "ratio", "kv_format")}
        own = {name: getattr(self, name) for name in ("prompt_tokens", "new_tokens", "ignore_stop")}
        return (
            {name: value if isinstance(value, int) else str(value) for name, value in named.items()}
            | own
            | vars(self.sampling)
        )


def chosen(runtime: Runtime, config: RunConfig) -> Path | None:
    """The file that llama.cpp computes; None: transformers computes the model. Raises InputError."""
    return file_of(config.model.model) if takes_llama(runtime, config.model.model) else None


def refuse(asked: Mapping[str, object]) -> None:
    """Raises InputError for the first option of a command that is asked for and that llama.cpp does not serve."""
    for name, value in asked.items():
        if value:
            raise InputError(f"llama.cpp does not serve `{name}`: leave it out, or take `runtime=transformers`")


def continue_text(config: RunConfig, wanted: Wanted) -> None:
    """Continue a prompt: the text goes to stdout as it comes, progress and numbers to stderr."""
    from kvdrive.llama.context import Context
    from kvdrive.llama.generate import Request, generate
    from kvdrive.llama.opening import room_of
    from kvdrive.llama.report import report_of, table
    from kvdrive.report.rates import rates

    console = Console(stderr=True)
    with opened(config, wanted.typed, console) as model:
        ids = model.vocabulary.encode(wanted.prompt)[-wanted.prompt_tokens :]
        request = Request(ids, wanted.new_tokens, wanted.sampling, wanted.ignore_stop, stream=not wanted.as_json)
        room = room_of(model, config, len(ids) + wanted.new_tokens)
        with Context(model, room_of(model, config, 0) if wanted.session else room) as context, ExitStack() as kept:
            sessions = None
            if wanted.session:
                sessions = kept.enter_context(kept_sessions(context, config, console))
            if sessions:
                say(console, f"going on after {sessions.resume([], wanted.session)} tokens")
            with progress("prompt: tokens", len(context.tokens) + len(ids), console) as on_tokens:
                done = generate(model, context, request, on_tokens)
            if sessions:
                context.extend(done.tokens[-1:])  # the next text goes on behind it
                sessions.keep(wanted.session)
        report = report_of(model, done, wanted.options(config))
    if wanted.verbose:
        console.print(table(report))
    else:
        say(console, rates(report))
    if wanted.as_json:
        typer.echo(json.dumps(report))


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
        yield Conversation(context, folder, sessions)


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


@contextmanager
def opened(config: RunConfig, given: frozenset[str], console: Console) -> Iterator[Model]:
    """The model, and one line that says what computes it. `given`: the options of a run that were typed."""
    from kvdrive.llama.opening import open_model

    with ExitStack() as kept:
        with waiting_for(f"loading {config.model.model}", console):
            model = kept.enter_context(open_model(config, given))
        say(console, f"llama.cpp {model.functions.release} computes {model.file.name} ({model.description}, as stored)")
        yield model


def typed(running: typer.Context) -> frozenset[str]:
    """The fields of a run whose flags were given to a command."""
    given = {name for name in running.params if _is_given(running, name)}
    return frozenset(name for name in OPTIONS if flag_of(name) in given)


def _is_given(running: typer.Context, name: str) -> bool:
    source = running.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def say(console: Console, sentence: str) -> None:
    """Print a sentence as it is."""
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)
