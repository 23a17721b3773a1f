"""`kvdrive chat`: a conversation in the terminal that stays on its drive."""

from __future__ import annotations

import os
import re
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from kvdrive import private
from kvdrive.cli.command import command
from kvdrive.cli.fields import Fields
from kvdrive.cli.llama import RuntimeOption, chosen, conversation_in, typed
from kvdrive.cli.paths import output_folder
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.generation.sampling import Sampling
from kvdrive.waiting import IMPORTS, waiting_for

if TYPE_CHECKING:
    from kvdrive.generation.conversation import Conversation
    from kvdrive.llama.conversation import Conversation as LlamaConversation

    Talk: TypeAlias = Conversation | LlamaConversation

app = typer.Typer()

_SPARE = 4  # extra capacity for partly filled pages, a copy of a saved cache that is opened, and collection
HELP = "/new starts anew, /quit or ^D leaves, ^C ends an answer"


@command(
    app,
    shown="chat --model smollm2",
    kept=lambda given: "all answers so far are kept; the same command goes on after them",
)
def chat(
    running: typer.Context,
    config: Annotated[
        RunConfig, Fields("model", "active", "memory", "limits", "xcache", "weights", "engine", "threads")
    ],
    drive: Annotated[
        Path | None,
        typer.Option(
            "--drive",
            "-d",
            callback=output_folder,
            help="folder of the conversation and its drive; default: one for each model",
        ),
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", "-n", min=1, help="tokens of an answer at most")
    ] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="0: always the most likely token")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="of the sampling")] = 0,
    runtime: RuntimeOption = "auto",
) -> None:
    """Talk with a model. K and V of the conversation stay on a drive: closed, killed and opened again, it goes on.

    A message is kept before its answer begins, an answer when it ends. /new starts anew, /quit or ^D leaves, ^C ends an
    answer.
    """
    sampling = Sampling(temperature, seed=seed)
    if file := chosen(runtime, config):
        folder = drive or _folder_of(file)
        private.make_folder(folder)
        with conversation_in(config, typed(running), folder) as held:
            return _converse(held, folder, max_new_tokens, sampling)
    with waiting_for(IMPORTS):
        import torch

        from kvdrive.generation.assistant import load_assistant
        from kvdrive.generation.conversation import Conversation
        from kvdrive.plugins.transformers import attach
        from kvdrive.targets.opening import open_named
        from kvdrive.weights.opening import load_from

    threads = config.target.threads or os.cpu_count() or 1
    torch.set_num_threads(threads)
    config = config.changed(
        sessions=True, threads=threads, folder=drive
    )  # of weights on a drive, and of K and V beside
    with waiting_for(f"loading {config.model.model}"):
        checkpoint = load_from(config)
    folder = drive or _folder_of(checkpoint.path)
    private.make_folder(folder)
    capacity = max(1 << 26, _SPARE * checkpoint.context * checkpoint.shape.bytes_per_token)
    options = replace(config.target, folder=None, capacity_bytes=capacity, group=checkpoint.shape.group)
    with (
        closing(checkpoint),
        open_named(folder / "drive.kv", options) as drives,
        attach(checkpoint.model, drives, config=config) as attached,
    ):
        assistant = None
        if config.model.assistant:
            with waiting_for(f"loading {config.model.assistant}"):
                assistant = load_assistant(config.model, checkpoint)
        conversation = Conversation(checkpoint, attached, folder, assistant)
        _converse(conversation, folder, max_new_tokens, sampling)


def _folder_of(model: Path) -> Path:
    """Where the conversation with a model is, unless the user names a folder."""
    return private.cache_folder() / "chats" / re.sub(r"[^\w.-]+", "_", model.resolve().name)


def _converse(conversation: Talk, folder: Path, new_tokens: int, sampling: Sampling) -> None:
    """Say what is there, answer what was not answered, and talk."""
    sys.stderr.write(f"{HELP}; everything is in {folder}\n")
    if conversation.messages:
        sys.stderr.write(
            f"going on after {len(conversation.messages)} messages, {conversation.tokens} tokens on the drive\n"
        )
    if asked := conversation.unanswered:
        sys.stderr.write(f"the answer to your last message did not end, here it is again: {asked}\n")
        _answer(conversation, asked, new_tokens, sampling)
    _talk(conversation, new_tokens, sampling)


def _talk(conversation: Talk, new_tokens: int, sampling: Sampling) -> None:
    """Read questions from stdin and answer them until stdin ends."""
    while (text := _ask()) not in (None, "/quit"):
        if text == "/new":
            conversation.start_anew()
        elif text:
            _answer(conversation, text, new_tokens, sampling)


def _answer(conversation: Talk, text: str, new_tokens: int, sampling: Sampling) -> None:
    """Answer a message, or say why it cannot be answered."""
    try:
        _show(conversation, text, new_tokens, sampling)
    except InputError as error:
        sys.stderr.write(f"kvdrive: {error}\n")


def _ask() -> str | None:
    """The next line of input; None at its end."""
    if sys.stdin.isatty():
        sys.stderr.write("> ")
        sys.stderr.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None


def _show(conversation: Talk, text: str, new_tokens: int, sampling: Sampling) -> None:
    answer = conversation.answer(text, new_tokens, sampling)
    try:
        for piece in answer:
            sys.stdout.write(piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        answer.close()  # type: ignore[attr-defined]
    sys.stdout.write("\n")
    sys.stdout.flush()
    drafted = conversation.drafted
    share = "" if drafted is None else f"; {drafted.accepted} of {drafted.drafted} drafted tokens accepted"
    sys.stderr.write(f"({conversation.computed} tokens computed, {conversation.tokens} on the drive{share})\n")
