"""`kvdrive run`, which `make run` calls: a long real document, continued with its KV cache in the drive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvdrive.cli.groups import command
from kvdrive.cli.options import ModelOptions, TargetOptions
from kvdrive.errors import InputError

if TYPE_CHECKING:
    from kvdrive.generation.checkpoints import Checkpoint

app = typer.Typer()

_LONGEST_TOKEN = 32  # characters: what lies further back is not needed, whatever the tokenizer
_VERIFY_STEPS = 4  # the compiled kernels take about a second for each at 8192 tokens of the shipped model


@command(app)
def run(
    computed: ModelOptions,
    where: TargetOptions,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="tokens of the document to begin with")] = 8192,
    new_tokens: Annotated[int, typer.Option(min=2, help="tokens to generate")] = 128,
    out: Annotated[Path, typer.Option(help="folder for report.json, two plots and the timeline")] = Path("out/run"),
) -> None:
    """Continue a module of the standard library that the shipped model never saw; compare with stock transformers.

    Prefill on this machine's cores, K and V into the drive, decode attention in the drive. The first steps are repeated
    by the kernels compiled from the HLS sources. Exit code 1 when a token or a bit differs.
    """
    from rich.console import Console  # the rest imports torch
    from rich.markup import escape

    from kvdrive.generation.task import Settings, passed
    from kvdrive.generation.task import run as generate

    console = Console()
    settings = Settings(
        model=computed.model,
        dtype=computed.dtype,
        device=computed.device,
        new_tokens=new_tokens,
        ignore_stop=True,
        drives=where.options(),
        check=True,
        verify_steps=_VERIFY_STEPS,
        report=out,
    )

    def prompts(checkpoint: Checkpoint) -> list[list[int]]:
        names, ids = document(checkpoint, prompt_tokens)
        ending = checkpoint.tokenizer.decode(ids[-40:])
        console.print(f"the first {len(ids)} tokens of {names}, which end with", highlight=False, soft_wrap=True)
        console.print(f"[dim]...{escape(ending)}[/dim]\n[bold]and continue:[/bold]", highlight=False, soft_wrap=True)
        return [ids]

    if not passed(generate(settings, prompts, console)):
        raise typer.Exit(1)


def document(checkpoint: Checkpoint, tokens: int) -> tuple[str, list[int]]:
    """Names and first tokens of the longest modules held out from the training of models/mini. Raises InputError."""
    from kvdrive.eval.library import held_out_modules

    names: list[str] = []
    ids: list[int] = []
    for module in held_out_modules():
        names.append(module.name)
        ids += checkpoint.encode(module.text[: tokens * _LONGEST_TOKEN])
        if len(ids) >= tokens:
            return ", ".join(names), ids[:tokens]
    raise InputError(f"the held-out modules have {len(ids)} tokens: take fewer --prompt-tokens")
