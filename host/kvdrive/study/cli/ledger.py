"""`kvdrive ledger`: the five papers' claims beside our own values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kvdrive.cli.command import JsonFlag, example
from kvdrive.cli.paths import output_file
from kvdrive.errors import KvdriveError

app = typer.Typer()


@app.command(epilog=example("ledger --json"))
def ledger(
    write: Annotated[Path | None, typer.Option(callback=output_file, help="write the page there")] = None,
    check: Annotated[
        Path | None, typer.Option(help="compare with this page; fail where a difference is not explained")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compute our value of every claim of the five papers, and say which agree and which are inputs."""
    from kvdrive.study import claims_page as page

    found = page.entries()
    text = page.page(found)
    if write is not None:
        write.write_text(text)
    rows = [entry for paper in found.values() for entry in paper]
    wrong = [entry.unexplained for entry in rows if entry.unexplained]
    if check is not None and not (check.is_file() and check.read_text() == text):
        wrong.append(f"{check} is stale: kvdrive ledger --write {check}")
    if as_json:
        typer.echo(json.dumps(page.records(found)))
    else:
        typer.echo(page.totals(rows))
    if wrong:
        raise KvdriveError("; ".join(wrong))
