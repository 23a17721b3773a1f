"""The command line: one sub-command per subject, each in the package that it belongs to."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvdrive.errors import KvdriveError
from kvdrive.eval.cli import app as eval_app
from kvdrive.generate_cli import app as generate_app
from kvdrive.kernels.cli import app as kernel_app
from kvdrive.server.cli import app as serve_app

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Attention inside the drive.")
app.add_typer(kernel_app, name="kernel")
app.add_typer(generate_app)
app.add_typer(eval_app)
app.add_typer(serve_app)


class DriveEngine(StrEnum):
    """Who computes inside the drive."""

    hls = "hls"
    fast = "fast"


@app.command()
def run(
    prompt_file: Annotated[Path | None, typer.Option(help="text to continue; default: this project's own text")] = None,
    new_tokens: Annotated[int, typer.Option(min=1, max=4096, help="tokens to generate")] = 32,
    engine: Annotated[DriveEngine, typer.Option(help="the drive's compute engine")] = DriveEngine.hls,
    out: Annotated[Path, typer.Option(help="folder for the report, the model and the drive's file")] = Path("out/run"),
) -> None:
    """Continue a text with a small model whose KV cache lives in the drive; compare with stock transformers."""
    from kvdrive.run import run as run_model  # imports torch

    raise typer.Exit(run_model(prompt_file, new_tokens, engine.value, out))


def main() -> None:
    """Entry point: our own errors are one sentence on stderr, exit code 2."""
    try:
        app()
    except KvdriveError as error:
        sys.stderr.write(f"kvdrive: {error}\n")
        sys.exit(2)
