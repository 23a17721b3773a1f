"""`kvdrive doctor`: the checks, as a table or as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kvdrive import private
from kvdrive.cli.command import JsonFlag, example
from kvdrive.cli.doctor_checks import checks
from kvdrive.cli.paths import output_file
from kvdrive.doctor.finding import Finding, State
from kvdrive.errors import InputError
from kvdrive.waiting import IMPORTS, waiting_for

if TYPE_CHECKING:
    from kvdrive.weights.modes import Modes

app = typer.Typer()

_TITLES = {
    State.broken: "What everybody needs and does not work:",
    State.missing: "What is not available here; all of it is optional:",
    State.ok: "What works:",
}


@app.command(epilog=example("doctor --model mini"))
def doctor(
    as_json: JsonFlag = False,
    model: Annotated[str, typer.Option(help="only this checkpoint: what a drive would hold of it")] = "",
    drive: Annotated[str, typer.Option(help="also the rates measured for this drive's file, folder or address")] = "",
    report: Annotated[
        Path | None,
        typer.Option(callback=output_file, help="write the findings and measured rates to this JSON file"),
    ] = None,
) -> None:
    """Say what works on this machine and what is missing. Exit code 1 when something that everybody needs is broken.

    With --model: one row for a checkpoint and the memory for its weights, from its configuration; exit code 1 when no
    drive can serve it.
    """
    if model and (drive or report is not None):
        raise InputError("--model shows a checkpoint alone: leave --drive and --report out")
    if model:
        _model(model, as_json)
        return
    with waiting_for("checking this machine"):
        found = list(checks(drive))
    if report is not None:
        from kvdrive.doctor.rates import rates

        content = {"findings": [asdict(one) for one in found], "rates": rates()}
        private.write_text(report, json.dumps(content, indent=1) + "\n")
        typer.echo(f"{report} holds the findings and rates; docs/guide/remote.md says how to send them", err=True)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found]))
    else:
        typer.echo("\n".join(lines(found)), nl=False)
    if any(finding.state is State.broken for finding in found):
        raise typer.Exit(1)


def _model(name: str, as_json: bool) -> None:
    """Print the row of a checkpoint. Raises InputError."""
    import shutil

    with waiting_for(IMPORTS):
        from kvdrive.doctor.model import read_config, row_of, weights_of
        from kvdrive.generation import places
        from kvdrive.private import cache_folder

    with waiting_for(f"reading {name}"):
        config = read_config(places.find(name))
    place = next(folder for folder in (cache_folder(), *cache_folder().parents) if folder.exists())
    row = row_of(name, config, shutil.disk_usage(place).free)
    weights = weights_of(config)
    if as_json:
        fields = {"verdict": row.verdict, "weights": weights.as_json() if weights else None}
        typer.echo(json.dumps(asdict(row) | fields))
    else:
        columns = {
            "family": row.family,
            "heads per KV head": row.group,
            "head dim": row.head_dim,
            "layers on drive": row.layers_on_drive,
            "in memory": row.layers_in_memory,
            "bytes a token": f"{row.bytes_per_token:,}",
            "tokens that fit": "any" if row.tokens_that_fit is None else f"{row.tokens_that_fit:,}",
        }
        table = Table(*columns)
        table.add_row(*map(str, columns.values()))
        Console().print(table)
        if weights:
            Console().print(_memory(weights))
        typer.echo(f"{name}: {row.verdict}")
    if row.refused:
        raise typer.Exit(1)


def _memory(weights: Modes) -> Table:
    """What the weights take in memory, by mode and precision."""
    table = Table("memory for weights", *weights.precisions)
    table.add_row("all of them", *(_size(weights.in_memory(one)) for one in weights.precisions))
    for mode, least in weights.on_flash_at_least.items():
        table.add_row(f"{mode}, at least", *(_size(least[one]) for one in weights.precisions))
    return table


def _size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"


def lines(found: list[Finding], width: int = 80) -> Iterator[str]:
    """One finding as lines of text, the problem first. Lines wrap at `width`, but commands and paths are never cut."""
    for state, title in _TITLES.items():
        chosen = [finding for finding in found if finding.state is state]
        if not chosen:
            continue
        yield title
        for finding in chosen:
            gives = f" ({finding.gives})" if finding.gives and state is not State.ok else ""
            yield from _wrapped(f"  {finding.name}: {finding.detail}{gives}", width)
            if finding.remedy and state is not State.ok:
                yield f"    -> {finding.remedy}"
        yield ""


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
