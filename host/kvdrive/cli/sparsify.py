"""`kvdrive sparsify`: thresholds below which activations of a dense model count as zero, and what they cost."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from kvdrive.cli.command import JsonFlag, command
from kvdrive.cli.fields import Fields
from kvdrive.cli.paths import input_files
from kvdrive.config.run import RunConfig
from kvdrive.config.sizes import share_or_bytes
from kvdrive.errors import InputError
from kvdrive.waiting import IMPORTS, waiting_for

app = typer.Typer()


@command(app, shown="sparsify --model mini --shares 50%,70%")
def sparsify(
    config: Annotated[RunConfig, Fields("model", "weights", without=("assistant", "accepted"))],
    shares: Annotated[str, typer.Option(help="of the activations that become zero, comma-separated")] = "50%,70%,90%",
    text: Annotated[
        list[Path] | None, typer.Option(callback=input_files, help="UTF-8 file; default: held-out standard library")
    ] = None,
    windows: Annotated[int, typer.Option(min=1, help="of text, to learn the thresholds and again to rate them")] = 4,
    tokens: Annotated[int, typer.Option(min=16, help="of a window")] = 512,
    as_json: JsonFlag = False,
) -> None:
    """Find the thresholds of `kvdrive generate --ffn fatrelu:SHARE`, and measure the perplexity with them.

    `kvdrive convert` comes first: the result is kept beside the file of weights. The model itself may be in memory or,
    with --weights flash, too large for it.
    """
    wanted = [part.strip() for part in shares.split(",")]
    parsed = [_share(part) for part in wanted]
    if config.weights.ffn != "exact":
        raise InputError("sparsify begins with the exact model: leave --ffn out")
    if config.weights.weights in ("drive", "stream"):
        raise InputError("sparsify needs the file of weights, or a model in memory: take --weights flash")
    with waiting_for(IMPORTS):
        from rich.console import Console
        from rich.table import Table

        from kvdrive.eval.evaluation import documents
        from kvdrive.eval.perplexity import windows as windows_of
        from kvdrive.generation import places
        from kvdrive.generation.progress import bar
        from kvdrive.weights.calibrate import calibrate
        from kvdrive.weights.cuts import keep_cuts
        from kvdrive.weights.finding import manifest_of
        from kvdrive.weights.opening import load_from

    file, manifest = manifest_of(places.find(config.model.model), config.stored())
    if not manifest.neurons:
        raise InputError(f"{file} holds experts: thresholds are for dense models")
    with waiting_for(f"loading {config.model.model}"):
        checkpoint = load_from(config.changed(weights_file=None) if config.weights.weights == "memory" else config)
    with closing(checkpoint):
        found = windows_of(documents(checkpoint, text or []), tokens - 1, 1, 2 * windows)
        steps = windows * (2 + len(parsed))
        with bar(Console(stderr=True), "windows of text", steps) as (bars, task):
            names = [array.name for array in manifest.neurons]
            cuts = calibrate(checkpoint.model, names, parsed, found[::2], found[1::2], lambda: bars.advance(task))
    kept = keep_cuts(file, manifest, dict(zip(wanted, cuts, strict=True)))
    if as_json:
        typer.echo(json.dumps({share: asdict(one) for share, one in zip(wanted, cuts, strict=True)}))
        return
    table = Table("--ffn", "zeros", "perplexity before", "with it", "change")
    for share, cost in zip(wanted, (one.cost for one in cuts), strict=True):
        assert cost is not None
        cells = f"{cost.zeros:.1%}", f"{cost.before:.3f}", f"{cost.after:.3f}", cost.change
        table.add_row(f"fatrelu:{share}", *cells)
    Console().print(table)
    typer.echo(f"written: {kept}", err=True)


def _share(text: str) -> Fraction:
    """A share as 70%. Raises InputError."""
    share = share_or_bytes(text)
    if not isinstance(share, Fraction) or share >= 1:
        raise InputError(f"--shares '{text}' is no share: write them as 50%,70%")
    return share
