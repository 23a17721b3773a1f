"""`kvdrive calibrate`: ratios of policy groups for each KV head, as small as a limit of the KL divergence allows."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvdrive.cli.command import JsonFlag, command
from kvdrive.cli.fields import Fields
from kvdrive.cli.paths import input_files
from kvdrive.config.run import RunConfig
from kvdrive.waiting import IMPORTS, waiting_for

if TYPE_CHECKING:
    from kvdrive.policies.choice import Choice

app = typer.Typer()


@command(
    app,
    shown="calibrate --kl 0.01,0.02 --context 2048",
    kept=lambda given: "what was measured is kept, and the same command goes on with it",
)
def calibrate(
    config: Annotated[
        RunConfig,
        Fields(
            *("model", "target", "weights", "unit", "kv_format"),
            without=("assistant", "accepted", "drives", "folder", "format"),
            unchecked=("index", "hot_bytes"),  # policy groups is what it measures
        ),
    ],
    kl: Annotated[str, typer.Option(help="limits of the divergence, nats per token, comma-separated")] = "0.01",
    context: Annotated[int, typer.Option(min=64, help="tokens of context; choose what you will use")] = 4096,
    windows: Annotated[int, typer.Option(min=1, help="windows of text")] = 2,
    targets: Annotated[int, typer.Option(min=1, help="tokens rated in each window")] = 32,
    text: Annotated[
        list[Path] | None, typer.Option(callback=input_files, help="UTF-8 file; default: other modules than eval's")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0, help="heads not measured by then read everything; the search follows; 0: no bound")
    ] = 0.0,
    as_json: JsonFlag = False,
) -> None:
    """Find the ratios of `--attention auto:KL`: the fewest bytes with a KL divergence from exact attention below KL.

    Each KV head is measured alone at 1/2, 1/4, 1/8 and 1/16; a search with the whole model follows. Measurements and
    ratios are kept in your cache folder. Stopped or killed, the same command goes on.
    """
    with waiting_for(IMPORTS):
        from rich.console import Console
        from rich.table import Table

        from kvdrive.eval.calibration import Settings, run
        from kvdrive.policies.choice import limit_of

    limits = [limit_of(part.strip()) for part in kl.split(",")]
    settings = Settings(
        config.changed(attention="groups"),
        limits=limits,
        context=context,
        windows=windows,
        targets=targets,
        texts=text or [],
        seconds=60 * minutes,
    )
    path, found = run(settings, Console(stderr=True))
    if as_json:
        typer.echo(json.dumps({limit: asdict(one) for limit, one in found.items()}, default=str))
        return
    table = Table("--attention", "KL", "of exact's bytes", "heads at 1 / 1/2 / 1/4 / 1/8 / 1/16")
    for limit, one in found.items():
        table.add_row(f"auto:{limit}", _measured(one), f"{one.of_exact:.2f}", _heads(one))
    Console().print(table)
    typer.echo(f"written: {path}", err=True)


def _measured(choice: Choice) -> str:
    return f"{choice.kl:.4f}" + ("" if choice.kl_error is None else f" ± {choice.kl_error:.4f}")


def _heads(choice: Choice) -> str:
    shares = [share for row in choice.ratios for share in row]
    return " / ".join(str(sum(share * count == 1 for share in shares)) for count in (1, 2, 4, 8, 16))
