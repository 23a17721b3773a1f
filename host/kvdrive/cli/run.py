"""`kvdrive run`, which `make run` calls: a question about a long real document, its KV cache in the drive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvdrive.cli.fields import configured
from kvdrive.cli.groups import command
from kvdrive.cli.options import InputTier, MemoryTier, ModelOptions, TargetOptions, kept_drives
from kvdrive.cli.paths import output_folder
from kvdrive.waiting import IMPORTS, waiting_for

if TYPE_CHECKING:
    from kvdrive.generation.checkpoints import Checkpoint

app = typer.Typer()

_PROMPT_TOKENS = 8192
_ROOM = 1024  # positions reserved for the answer
_VERIFY_STEPS = 4  # the compiled kernels take about a second per step, at 8192 tokens of the shipped model


@command(app, kept=lambda given: f"there is only the text so far; {kept_drives(given)}")
def run(
    computed: ModelOptions,
    where: TargetOptions,
    tier: MemoryTier,
    inputs: InputTier,
    prompt_tokens: Annotated[int, typer.Option(min=0, help="of document and question; 0: 8192 or what fits")] = 0,
    new_tokens: Annotated[int, typer.Option(min=2, help="tokens to generate at most")] = 48,
    out: Annotated[
        Path, typer.Option(callback=output_folder, help="folder for report.json, two plots and the timeline")
    ] = Path("out/run"),
) -> None:
    """Ask for something that stands thousands of tokens back; compare with stock transformers.

    The shipped model is asked for a pass key in source code that it never saw, a model with a chat template (smollm2)
    for a number stated in the reference of the Python language. Prefill on this machine's cores, K and V into the
    drive, decode attention in the drive. The first steps are repeated by the kernels compiled from the HLS sources,
    unless the sequence is in memory.
    Exit code 1 when a token or a bit differs.
    """
    with waiting_for(IMPORTS):
        from rich.console import Console

        from kvdrive.generation.demonstration import Demonstration, demonstration
        from kvdrive.generation.task import Settings, passed
        from kvdrive.generation.task import run as generate

    console = Console()
    config = configured(computed, where, tier, inputs)
    settings = Settings(
        config,
        new_tokens=new_tokens,
        check=True,
        verify_steps=_VERIFY_STEPS if config.placement.active == "drive" else 0,
        report=out,
    )

    shown: list[Demonstration] = []

    def prompts(checkpoint: Checkpoint) -> list[list[int]]:
        tokens = prompt_tokens or min(_PROMPT_TOKENS, checkpoint.context - _ROOM)
        shown.append(demonstration(checkpoint, tokens))
        console.print(f"text: {shown[0].about}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"question: {shown[0].question}", highlight=False, markup=False, soft_wrap=True)
        console.print("the model goes on:", highlight=False, markup=False)
        return [shown[0].ids]

    report = generate(settings, prompts, console)
    console.print(shown[0].verdict(report["text"][0]), highlight=False, markup=False, soft_wrap=True)
    if not passed(report):
        raise typer.Exit(1)
