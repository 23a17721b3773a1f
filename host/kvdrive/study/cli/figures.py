"""`kvdrive figures`: the papers' figures from our models."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kvdrive.cli.command import OUTPUT, example
from kvdrive.cli.paths import output_folder
from kvdrive.errors import InputError

app = typer.Typer()


class PaperName(StrEnum):
    """The papers whose figures are drawn."""

    instinfer = "instinfer"
    hilos = "hilos"
    cachedattention = "cachedattention"
    flash = "llm-in-a-flash"
    paged = "ssd-paged"


@app.command(epilog=example("figures --paper hilos --report out/papers"))
def figures(
    paper: Annotated[
        list[PaperName] | None, typer.Option(help="draw this paper's figures only; may be repeated")
    ] = None,
    report: Annotated[
        Path,
        typer.Option(
            "--report",
            "-o",
            callback=output_folder,
            help="folder for pictures and JSON; papers.md lies beside it",
            rich_help_panel=OUTPUT,
        ),
    ] = Path("papers"),
    predictions: Annotated[
        bool, typer.Option("--predictions", help="print the predictions as JSON, draw nothing")
    ] = False,
) -> None:
    """Draw the papers' figures from our models, with the values that the papers state beside ours.

    Everything is modelled. The page is written from the JSON files in the folder. Those of papers that are not drawn
    now come from an earlier run.
    """
    from kvdrive.study import figures_page as page
    from kvdrive.study.predictions import predictions as predict

    if predictions and paper:
        raise InputError("--predictions prints those of all papers: leave --paper out")
    if predictions:
        typer.echo(json.dumps(page.predicted(predict())))
        return
    report.mkdir(parents=True, exist_ok=True)
    chosen = [name.value for name in paper] if paper else list(page.PAPERS)
    console = Console(stderr=True)
    for name in chosen:
        with console.status(f"figures of {name}"):
            found = page.write_paper(report, page.PAPERS[name]())
        typer.echo(f"{found['paper']}: {len(found['figures'])} figures")
    if paper is None:
        with console.status("predictions"):
            page.write_json(report, page.PREDICTIONS, page.predicted(predict()))
    missing = [name for name in page.PAPERS if not (report / f"{name}.json").is_file()]
    if missing or not (report / page.PREDICTIONS).is_file():
        return  # a page needs all of them
    try:
        records = [json.loads((report / f"{name}.json").read_text()) for name in page.PAPERS]
        foreseen = json.loads((report / page.PREDICTIONS).read_text())
    except ValueError as error:
        raise InputError(f"{report} has a damaged JSON file: run kvdrive figures --report {report} again") from error
    text = page.page(records, foreseen, report.name)
    (report.parent / "papers.md").write_text(text)
    typer.echo(f"page: {report.parent / 'papers.md'}")
