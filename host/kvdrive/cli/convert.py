"""`kvdrive convert`: a checkpoint into a file of weights that can stay on flash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from kvdrive.choices import TARGETS, WEIGHTS_FORMATS, explained
from kvdrive.cli.command import JsonFlag, command
from kvdrive.cli.paths import output_file, output_folder
from kvdrive.errors import InputError
from kvdrive.targets.addresses import FORMS, is_address
from kvdrive.waiting import IMPORTS, waiting_for

if TYPE_CHECKING:
    FormatName: TypeAlias = str
else:
    FormatName = Literal[tuple(WEIGHTS_FORMATS)]

app = typer.Typer()


@command(
    app,
    shown="convert --model mini_relu",
    kept=lambda given: "the same command goes on with what is converted already",
)
def convert(
    model: Annotated[str, typer.Option(help="folder of a Hugging Face checkpoint, a .gguf file, or a name")],
    weights_file: Annotated[
        Path | None, typer.Option(callback=output_file, help="the file to write; default: in your cache folder")
    ] = None,
    weights_format: Annotated[FormatName, typer.Option(help=f"on flash. {explained(WEIGHTS_FORMATS)}")] = "auto",
    gates: Annotated[
        Literal["memory", "flash"],
        typer.Option(
            help="of a dense model's neurons. flash: less memory, for --ffn predictor: others read every neuron"
        ),
    ] = "memory",
    drive: Annotated[
        Path | None,
        typer.Option(
            callback=output_folder,
            help="folder of a drive that gets the weights, too, beside K and V, for --weights drive; made if it is not "
            "there",
        ),
    ] = None,
    target: Annotated[
        str, typer.Option(help=f"of the drive: {explained(TARGETS)}; or its address: {FORMS}")
    ] = "emulator",
    as_json: JsonFlag = False,
) -> None:
    """Write the experts, or the neurons of a dense model, in bundles, for `kvdrive generate --weights flash`.

    A conversion that was stopped goes on where it was. Afterwards only the configuration and the tokenizer of the
    checkpoint are needed.
    """
    with waiting_for(IMPORTS):
        from rich.console import Console

        from kvdrive.generation import places
        from kvdrive.targets.options import DriveOptions
        from kvdrive.weights.making import make_file, put_on_drive

    on_drive = drive is not None or is_address(target)
    if target != "emulator" and not on_drive:
        raise InputError(f"--target {target} makes a drive in a folder: name it with --drive")
    drives = DriveOptions(target=target, folder=drive) if on_drive else None
    console = Console(stderr=True)
    done = make_file(places.find(model), weights_file, weights_format, console, gates=gates == "flash")
    placed = put_on_drive(done.path, drives, console) if drives else None
    if as_json:
        fields = {"bytes": done.file_bytes, "experts": done.experts, "neurons": done.neurons, "resumed": done.resumed}
        typer.echo(json.dumps({"path": str(done.path), "drive": placed} | fields))
    else:
        held = f"{done.experts:,} experts" if done.experts else f"{done.neurons:,} neurons"
        again = f", {done.resumed} parts were there" if done.resumed else ""
        typer.echo(f"{done.path}: {held}, {done.file_bytes / 2**20:,.1f} MiB{again}")
        if placed is not None:
            typer.echo(f"{placed} holds them, too")
