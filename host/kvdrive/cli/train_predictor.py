"""`kvdrive train-predictor`: low-rank predictors of the neurons that a token uses, and what they cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from kvdrive.cli.command import JsonFlag, command
from kvdrive.cli.fields import Fields
from kvdrive.cli.paths import input_files
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.waiting import IMPORTS, waiting_for

if TYPE_CHECKING:
    from kvdrive.weights.predictor import Predictors

app = typer.Typer()


@command(app, shown="train-predictor --model mini_relu")
def train_predictor(
    config: Annotated[RunConfig, Fields("model", "weights_file", without=("assistant",))],
    ffn: Annotated[
        str, typer.Option(help="what counts as zero: exact zeros, or fatrelu:SHARE of `sparsify`")
    ] = "exact",
    rank: Annotated[
        int, typer.Option(min=1, help="numbers between input and neurons; the paper takes 128 to 1024")
    ] = 128,
    epochs: Annotated[int, typer.Option(min=1, help="passes over the text at most")] = 60,
    patience: Annotated[int, typer.Option(min=1, help="passes without a gain on held-out text before it stops")] = 4,
    text: Annotated[
        list[Path] | None, typer.Option(callback=input_files, help="UTF-8 file; default: held-out standard library")
    ] = None,
    windows: Annotated[int, typer.Option(min=4, help="of text; a quarter stops the training, a quarter rates it")] = 16,
    tokens: Annotated[int, typer.Option(min=16, help="of a window")] = 512,
    as_json: JsonFlag = False,
) -> None:
    """Train the predictors of `kvdrive generate --ffn predictor`, and measure how often they are wrong.

    `kvdrive convert` comes first: the result is kept beside the file of weights. The model must fit into memory here.
    """
    with waiting_for(IMPORTS):
        from kvdrive.eval.evaluation import documents
        from kvdrive.eval.perplexity import windows as windows_of
        from kvdrive.generation import checkpoints, places
        from kvdrive.generation.progress import bar
        from kvdrive.weights.cuts import cuts_of
        from kvdrive.weights.finding import manifest_of
        from kvdrive.weights.predictor import keep_predictors
        from kvdrive.weights.training import Text, Training, make_predictors

    file, manifest = manifest_of(places.find(config.model.model), config.weights)
    if not manifest.neurons:
        raise InputError(f"{file} holds experts: predictors are for dense models")
    cuts = cuts_of(ffn, file, manifest)
    with waiting_for(f"loading {config.model.model}"):
        checkpoint = checkpoints.load(config.model.model, config.model.dtype, config.model.device)
    found = Text.of(windows_of(documents(checkpoint, text or []), tokens - 1, 1, windows))
    names = [array.name for array in manifest.neurons]
    steps = windows + len(names) + len(found.rated)
    with bar(Console(stderr=True), "windows and layers", steps) as (bars, task):
        made = make_predictors(
            checkpoint.model, names, found, cuts, Training(rank, epochs, patience), lambda: bars.advance(task)
        )
    kept = keep_predictors(file, manifest, made)
    if as_json:
        errors = {name: asdict(one) for name, one in made.errors.items()}
        typer.echo(json.dumps({"path": str(kept), "cost": asdict(made.cost), "errors": errors, "bytes": made.bytes}))
        return
    Console().print(_table(made))
    typer.echo(f"{made.cost}\nwritten: {kept}, {made.bytes / 2**20:,.1f} MiB", err=True)


def _table(made: Predictors) -> Table:
    table = Table(Column("layer", no_wrap=True), "used", "foreseen", "missed", "needless", "epochs")
    for name, one in made.errors.items():
        shares = (one.used, one.foreseen, one.missed, one.needless)
        table.add_row(name, *(f"{share:.1%}" for share in shares), str(one.epochs))
    return table
