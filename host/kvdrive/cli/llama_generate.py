"""What `kvdrive generate` does where llama.cpp computes the model."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from kvdrive.cli.llama import kept_sessions, opened, say
from kvdrive.config.run import RunConfig
from kvdrive.generation.sampling import Sampling
from kvdrive.waiting import progress

if TYPE_CHECKING:
    from kvdrive.llama.generate import Request
    from kvdrive.llama.model import Model
    from kvdrive.llama.report import Generated


@dataclass(frozen=True)
class Wanted:
    """What `kvdrive generate` is asked for, beside the options of a run. `typed`: those of them that were given.
    `batch`: texts at once, 0: one for each prompt.
    """

    typed: frozenset[str]
    prompts: list[str]
    batch: int
    session: str
    prompt_tokens: int
    new_tokens: int
    sampling: Sampling
    ignore_stop: bool
    verbose: bool
    as_json: bool

    @property
    def request(self) -> Request:
        """How texts are continued."""
        from kvdrive.llama.generate import Request

        return Request(self.new_tokens, self.sampling, self.ignore_stop, stream=not self.as_json)

    def options(self, config: RunConfig) -> dict[str, Any]:
        """All options as JSON takes them."""
        named = {name: config.values()[name] for name in ("model", "threads", "attention", "ratio", "kv_format")}
        own = {name: getattr(self, name) for name in ("batch", "prompt_tokens", "new_tokens", "ignore_stop")}
        return (
            {name: value if isinstance(value, int) else str(value) for name, value in named.items()}
            | own
            | vars(self.sampling)
        )


def continue_text(config: RunConfig, wanted: Wanted) -> None:
    """Continue a prompt: the text goes to stdout as it comes, progress and numbers to stderr."""
    from kvdrive.llama.report import report_of, table
    from kvdrive.report.rates import rates

    console = Console(stderr=True)
    with opened(config, wanted.typed, console) as model:
        ids = [model.vocabulary.encode(text)[-wanted.prompt_tokens :] for text in wanted.prompts]
        rows = wanted.batch or len(ids)
        if rows > 1:
            done = _several(model, config, [ids[row % len(ids)] for row in range(rows)], wanted, console)
        else:
            done = _one(model, config, ids[0], wanted, console)
        report = report_of(model, done, wanted.options(config))
    for number, text in enumerate(report["text"] if rows > 1 and not wanted.as_json else []):
        console.print(f"row {number}:", style="dim")
        typer.echo(text)
    if wanted.verbose:
        console.print(table(report))
    else:
        say(console, rates(report))
    if wanted.as_json:
        typer.echo(json.dumps(report))


def _one(model: Model, config: RunConfig, ids: list[int], wanted: Wanted, console: Console) -> Generated:
    from kvdrive.llama.context import Context
    from kvdrive.llama.generate import generate
    from kvdrive.llama.opening import room_of
    from kvdrive.prefix.request import Request

    room = room_of(model, config, len(ids) + wanted.new_tokens)
    with Context(model, room_of(model, config, 0) if wanted.session else room) as context, ExitStack() as kept:
        sequence, session = context.sequences[0], None
        if wanted.session and (sessions := kept.enter_context(kept_sessions(context, config, console))):
            session = sessions.of(sequence)
            say(console, f"going on after {session.resume(Request(name=wanted.session))} tokens")
        with progress("prompt: tokens", len(sequence.tokens) + len(ids), console) as on_tokens:
            done = generate(sequence, ids, wanted.request, on_tokens)
        if session:
            sequence.extend(done.tokens[0][-1:])  # the next text goes on behind it
            session.keep(wanted.session)
    return done


def _several(model: Model, config: RunConfig, prompts: list[list[int]], wanted: Wanted, console: Console) -> Generated:
    from kvdrive.llama.context import Context
    from kvdrive.llama.generate import generate_several
    from kvdrive.llama.opening import room_of

    room = room_of(model, config, max(map(len, prompts)) + wanted.new_tokens)
    with (
        Context(model, room, len(prompts)) as context,
        progress("new tokens", len(prompts) * wanted.new_tokens, console) as on_tokens,
    ):
        return generate_several(context, prompts, wanted.request, on_tokens)
