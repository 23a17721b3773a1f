"""`kvdrive eval`: perplexity and retrieval under attention policies, against the bytes that they read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from kvdrive.choices import KV_FORMATS, explained
from kvdrive.cli.command import JsonFlag, command
from kvdrive.cli.fields import Fields
from kvdrive.cli.paths import input_files, output_folder
from kvdrive.config.option import Given, Needs
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.policies import POLICIES, parse_ratio
from kvdrive.targets.options import DriveOptions
from kvdrive.waiting import IMPORTS, waiting_for

app = typer.Typer()


def _sparse(given: Given) -> bool:
    """True if one of the policies reads groups of tokens by an index."""
    names = {part.strip().partition(":")[0] for part in given["policies"].split(",")}
    return bool(names & {"groups", "auto", "all"})


_GROUPS = Needs("policy groups", _sparse)


@command(
    app,
    "eval",
    shown="eval --policies exact,groups --contexts 2048 --windows 2 --cases 0",
    kept=lambda given: "no new answer; earlier ones stay",
)
def evaluate(
    config: Annotated[
        RunConfig,
        Fields(
            *("model", "target", "weights"),
            without=("assistant", "accepted", "drives", "folder", "format"),
            unchecked=("index", "hot_bytes"),
        ),
    ],
    policies: Annotated[str, typer.Option(help=f"{', '.join(POLICIES)}: comma-separated, or all")] = "exact",
    ratios: Annotated[
        str,
        typer.Option(help="shares of K and V that policies other than exact use"),
        Needs("a policy other than exact", lambda given: given["policies"] != "exact"),
    ] = "1/8",
    unread_limits: Annotated[
        str, typer.Option(help="limits of what groups leaves unread, at the smallest ratio: as 0.1,0.2"), _GROUPS
    ] = "",
    units: Annotated[str, typer.Option(help="also policy groups with units of these tokens: as 64,128"), _GROUPS] = "",
    contexts: Annotated[str, typer.Option(help="tokens of context, comma-separated")] = "512,2048,8192",
    windows: Annotated[int, typer.Option(min=0, help="windows of text for perplexity")] = 4,
    targets: Annotated[int, typer.Option(min=1, help="tokens rated in each window")] = 64,
    tasks: Annotated[str, typer.Option(help="passkey, lines, documents: comma-separated")] = "passkey,lines,documents",
    cases: Annotated[int, typer.Option(min=0, help="cases per retrieval task and context")] = 5,
    text: Annotated[
        list[Path] | None, typer.Option(callback=input_files, help="UTF-8 file; default: held-out standard library")
    ] = None,
    kv_formats: Annotated[
        str, typer.Option(help=f"of K and V on the drive, comma-separated. {explained(KV_FORMATS)}")
    ] = "f16",
    seed: Annotated[int, typer.Option(min=0, help="of the retrieval cases")] = 1,
    report: Annotated[
        Path, typer.Option("--report", "-o", callback=output_folder, help="folder for eval.json and eval.png")
    ] = Path("out/eval"),
    resume: Annotated[bool, typer.Option("--resume", help="go on after the answers of a run that was stopped")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Rate a model whose KV cache lives in a drive: the same questions under each policy and ratio.

    Each policy is also compared with exact attention, token by token.

    Every answer is kept in partial.json of the folder --report. Stopped or killed, the same command with --resume goes
    on.
    """
    for name in ("index", "hot_bytes"):
        if getattr(config.target, name) != getattr(DriveOptions, name):
            _GROUPS.check(name, {"policies": policies})
    with waiting_for(IMPORTS):
        from rich.console import Console

        from kvdrive.eval import report as reports
        from kvdrive.eval.evaluation import Settings, evaluate
        from kvdrive.eval.partial import NAME, Partial

    settings = Settings(
        config,
        policies=policies,
        ratios=[parse_ratio(part) for part in ratios.split(",")],
        contexts=_lengths(contexts, "--contexts", "512,8192"),
        windows=windows,
        targets=targets,
        tasks=[part.strip() for part in tasks.split(",") if part.strip()],
        cases=cases,
        texts=text or [],
        seed=seed,
        kv_formats=[part.strip() for part in kv_formats.split(",") if part.strip()],
        unread=_limits(unread_limits),
        units=_lengths(units, "--units", "64,128") if units else [],
    )
    partial = Partial(report / NAME, settings.options(), resume)
    found = evaluate(settings, Console(stderr=True), partial)
    reports.write_json(report / "eval.json", found)
    partial.remove()
    points = reports.points_of(found)
    reports.sweep_picture(
        report / "eval.png", [p for p in points if p.context == max(settings.contexts)], config.model.model
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    screen = Console()
    (screen if screen.is_terminal else Console(width=200)).print(reports.sweep_table(points))
    sys.stderr.write(f"written: {report / 'eval.json'}, {report / 'eval.png'}\n")


def _limits(text: str) -> list[float]:
    try:
        return sorted({float(part) for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise InputError(f"--unread-limits '{text}' is no list of numbers: write it as 0.1,0.2") from error


def _lengths(text: str, option: str, example: str) -> list[int]:
    try:
        lengths = sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise InputError(f"{option} '{text}' is no list of numbers: write it as {example}") from error
    if lengths[0] < 2:
        raise InputError(f"{option} must be 2 tokens or more")
    return lengths
