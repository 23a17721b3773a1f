"""`kvdrive batch`: answers to the prompts of a file, on this machine or on several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kvdrive.cli.command import command
from kvdrive.cli.fields import Fields
from kvdrive.cli.llama import RuntimeOption, chosen, refuse, typed
from kvdrive.cli.paths import input_file, output_file
from kvdrive.config.option import Needs
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError

app = typer.Typer()
Row = dict[str, Any]


@command(
    app,
    shown="batch prompts.jsonl --out answers.jsonl --max-new-tokens 64",
    kept=lambda given: f"{given['out']} holds the answers so far: the same command goes on",
)
def batch(
    running: typer.Context,
    prompts: Annotated[
        Path, typer.Argument(callback=input_file, help='JSONL file: {"prompt": "..."} in each line, and "id" if wanted')
    ],
    config: Annotated[
        RunConfig,
        Fields(
            "model",
            "target",
            "policy",
            "placement",
            "weights",
            without=("active", "memory", "session_memory", "mini_batches"),
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            callback=output_file,
            help="JSONL file of the answers; what it holds already is not asked again",
        ),
    ],
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", "-n", min=1, help="tokens of an answer at most")
    ] = 256,
    actors: Annotated[int, typer.Option(min=0, help="Ray actors; 0: this process, without Ray")] = 0,
    ray_address: Annotated[
        str,
        typer.Option(help="of a Ray cluster; default: start one on this machine"),
        Needs("--actors", lambda given: given["actors"]),
    ] = "",
    runtime: RuntimeOption = "auto",
) -> None:
    """Answer every prompt of a file once, greedily, with K and V in drives.

    Each answer is written when it is there. A batch that was stopped goes on with the same command. Actors on several
    machines share drives at tcp://.
    """
    from kvdrive.batch.files import Answers, read_prompts

    by_llama = chosen(runtime, config) is not None
    if by_llama:
        refuse({"actors": actors})
    if actors and config.target.folder is not None:
        raise InputError("actors cannot share the files of --drive: serve the drives and take --target tcp://")
    asked = read_prompts(prompts)
    console = Console(stderr=True)
    with Answers(out) as answers:
        left = [prompt for prompt in asked if prompt.id not in answers.done]
        with _progress(console) as progress:
            task = progress.add_task("prompts", total=len(asked), completed=len(asked) - len(left))
            found = (
                _by_llama(left, max_new_tokens, config, typed(running))
                if by_llama
                else _answers(left, max_new_tokens, config, actors, ray_address)
            )
            for answer in found:
                progress.advance(task, answers.write(answer))
    console.print(f"{len(asked)} answers in {out}")


def _by_llama(left: Sequence[Any], new_tokens: int, config: RunConfig, given: frozenset[str]) -> Iterator[Row]:
    """The answers to prompts, by llama.cpp in this process."""
    if left:
        from kvdrive.llama.batch import answers

        yield from answers(left, new_tokens, config, given)


def _answers(left: Sequence[Any], new_tokens: int, config: RunConfig, actors: int, address: str) -> Iterator[Row]:
    """The answers to prompts, by Ray's actors or by this process."""
    if not left:
        return
    from kvdrive.batch.worker import Work

    work = Work(config, new_tokens)
    if actors:
        from kvdrive.batch import actors as ray_actors

        yield from ray_actors.answers(left, work, actors, address)
        return
    from kvdrive.batch.worker import Worker

    worker = Worker(work, max(len(prompt.text) for prompt in left))
    try:
        for prompt in left:
            yield worker.answer(prompt.id, prompt.text)
    finally:
        worker.close()


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)
