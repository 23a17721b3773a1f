"""`kvdrive run`, which `make run` calls: a question about a long real document, its KV cache in the drive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvdrive.cli.command import command
from kvdrive.cli.fields import Fields, kept_drives
from kvdrive.cli.llama import RuntimeOption, chosen, is_given, refuse, typed
from kvdrive.cli.llama_run import answer_question
from kvdrive.cli.paths import output_folder
from kvdrive.config.run import RunConfig
from kvdrive.waiting import IMPORTS, waiting_for

if TYPE_CHECKING:
    from kvdrive.generation.checkpoints import Checkpoint

app = typer.Typer()

_VERIFY_STEPS = 4  # the compiled kernels take about a second per step, at 8192 tokens of the shipped model


@command(
    app,
    shown="run --model smollm2",
    kept=lambda given: f"there is only the text so far; {kept_drives(given['config'])}",
)
def run(
    running: typer.Context,
    config: Annotated[
        RunConfig,
        Fields(
            *("model", "target", "active", "memory", "xcache"),
            without=("assistant", "drives", "folder", "format", "index", "hot_bytes"),
        ),
    ],
    prompt_tokens: Annotated[int, typer.Option(min=0, help="of document and question; 0: 8192 or what fits")] = 0,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", "-n", min=2, help="tokens to generate at most")
    ] = 48,
    report: Annotated[
        Path,
        typer.Option(
            "--report", "-o", callback=output_folder, help="folder for report.json, two plots and the timeline"
        ),
    ] = Path("out/run"),
    runtime: RuntimeOption = "auto",
) -> None:
    """Ask for something that stands thousands of tokens back; compare with stock transformers, or stock llama.cpp.

    The shipped model is asked for a pass key in source code that it never saw, a model with a chat template (smollm2)
    for a number stated in the reference of the Python language. Prefill on this machine's cores, K and V into the
    drive, decode attention in the drive. The first steps are repeated by the kernels compiled from the HLS sources,
    unless the sequence is in memory.
    Exit code 1 when a token or a bit differs; with llama.cpp, when a token differs that stock llama.cpp rates far below
    another one.
    """
    if chosen(runtime, config):
        refuse({"report": is_given(running, "report")})
        if not answer_question(config, typed(running), prompt_tokens, max_new_tokens):
            raise typer.Exit(1)
        return
    with waiting_for(IMPORTS):
        from rich.console import Console

        from kvdrive.generation.demonstration import Demonstration, demonstration
        from kvdrive.generation.task import Settings, passed
        from kvdrive.generation.task import run as generate

    console = Console()
    settings = Settings(
        config,
        new_tokens=max_new_tokens,
        check=True,
        verify_steps=_VERIFY_STEPS if config.placement.active == "drive" else 0,
        report=report,
        verbose=True,
    )

    shown: list[Demonstration] = []

    def prompts(checkpoint: Checkpoint) -> list[list[int]]:
        shown.append(demonstration(checkpoint, prompt_tokens))
        console.print(f"text: {shown[0].about}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"question: {shown[0].question}", highlight=False, markup=False, soft_wrap=True)
        console.print("the model goes on:", highlight=False, markup=False)
        return [shown[0].ids]

    found = generate(settings, prompts, console)
    console.print(shown[0].verdict(found["text"][0]), highlight=False, markup=False, soft_wrap=True)
    if not passed(found):
        raise typer.Exit(1)
