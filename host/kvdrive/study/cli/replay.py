"""`kvdrive replay`: a trace of requests through the index and the eviction policies, in virtual time."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from kvdrive.cli.command import JsonFlag, ReportFolder, command
from kvdrive.config.option import Needs
from kvdrive.errors import InputError
from kvdrive.prefix.eviction import EVICTIONS

app = typer.Typer()
_RECOMPUTE = "recompute"  # the replay where every prompt is computed whole
_MADE = ("sharegpt", "azure")  # traces that are generated
_GENERATED = Needs(f"a generated trace, {' or '.join(_MADE)}", lambda given: given["trace"] in _MADE)
_OF_FILE = Needs("the file of a trace", lambda given: given["trace"] not in _MADE)


@command(app, shown="replay sharegpt --conversations 500 --report out/replay")
def replay(
    trace: Annotated[
        str, typer.Argument(help="file of JSON lines as Mooncake's; or `sharegpt`, `azure`: generated conversations")
    ],
    policies: Annotated[str, typer.Option(help=f"eviction policies: {', '.join(EVICTIONS)}")] = "queue-aware,lru,fifo",
    model: Annotated[
        Literal["llama-13b", "llama-65b", "llama-70b", "falcon-40b"], typer.Option(help="size and speed of the model")
    ] = "llama-13b",
    memory: Annotated[float, typer.Option(min=0, help="GB of memory for sessions")] = 128,
    disk: Annotated[float, typer.Option(min=0, help="GB of disk for sessions")] = 10_000,
    slots: Annotated[int, typer.Option(min=1, help="sequences at once")] = 24,
    resume: Annotated[
        Literal["overlapped", "loaded", "in-place"],
        typer.Option(help="K and V load layer by layer during the prefill, or before it; or the drive attends"),
    ] = "overlapped",
    no_prefetch: Annotated[bool, typer.Option("--no-prefetch", help="load from disk when a request runs")] = False,
    requests: Annotated[int, typer.Option(min=0, help="read so many requests of a file at most; 0: all"), _OF_FILE] = 0,
    stretch: Annotated[
        float, typer.Option(min=0.001, help="let the time of a file's trace go so many times slower"), _OF_FILE
    ] = 1.0,
    conversations: Annotated[int, typer.Option(min=1, help="of a generated trace"), _GENERATED] = 2000,
    rate: Annotated[
        float, typer.Option(min=0.001, help="new conversations a second of a generated trace"), _GENERATED
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="of a generated trace"), _GENERATED] = 1,
    think: Annotated[
        float,
        typer.Option(min=0.001, help="of a generated trace: mean seconds between an answer and the next question"),
        _GENERATED,
    ] = 60,
    recompute_cut: Annotated[
        bool,
        typer.Option(
            "--recompute-cut", help="of a generated trace: compute again what is left of a context that was cut"
        ),
        _GENERATED,
    ] = False,
    warm_up: Annotated[int, typer.Option(min=0, help="do not count so many requests at the beginning")] = 0,
    report: ReportFolder = None,
    as_json: JsonFlag = False,
) -> None:
    """Replay requests in virtual time: hits, time to the first token, GPU time and cost by policy.

    Index and policies are those of the server. Times and costs are modelled with AttentionStore's published parameters.
    """
    from rich.progress import Progress

    from kvdrive.study.attention_store import report as reports
    from kvdrive.study.attention_store import simulation, traces
    from kvdrive.study.attention_store.hardware import GB, MODELS, Machine

    names = [name.strip() for name in policies.split(",")]
    if unknown := set(names) - set(EVICTIONS):
        raise InputError(f"there is no eviction policy '{unknown.pop()}': choose {', '.join(EVICTIONS)}")
    chosen = MODELS[model]
    if trace in _MADE:
        context = traces.Context(chosen.window, decoupled=not recompute_cut)
        arrivals = "poisson" if trace == "sharegpt" else "azure"
        given = traces.conversations(conversations, rate, seed, arrivals, think, context)
    else:
        given = traces.read(Path(trace), requests, stretch)
    machine = Machine(
        int(memory * GB),
        int(disk * GB),
        slots=slots,
        overlap=resume == "overlapped",
        in_place=resume == "in-place",
        prefetch=not no_prefetch,
    )
    results = {}
    total = sum(1 for _ in given)
    with Progress(*Progress.get_default_columns(), console=Console(stderr=True), transient=True) as progress:
        for name in (*names, _RECOMPUTE):
            task = progress.add_task(f"replaying {total:,} requests, {name}", total=total)
            results[name] = simulation.replay(
                given,
                chosen,
                machine,
                "lru" if name == _RECOMPUTE else name,
                keep=name != _RECOMPUTE,
                warm_up=warm_up,
                progress=partial(progress.advance, task),
            )
    described = reports.describe(given, chosen, machine, results)
    if report:
        reports.write(report, described)
    if as_json:
        typer.echo(json.dumps(described))
        return
    rows = {
        "hit_rate": "hits among requests with history", "hit_rate_of_all": "hits among all requests",
        "token_hit_rate": "tokens found", "token_load_rate": "tokens loaded, where it pays",
        "memory_share_of_hits": "hits in memory", "mean_ttft_seconds": "TTFT, s",
        "gpu_prefill_seconds": "prefill, s", "gpu_decode_seconds": "decode, s", "prefill_usd": "prefill, USD",
        "storage_usd": "storage, USD", "recomputed": "recomputed", "evictions": "evictions",
    }  # fmt: skip
    table = Table("", *described["results"], title=f"{given.name}: modelled with {model}", title_justify="left")
    for key, label in rows.items():
        table.add_row(label, *(_number(figures[key]) for figures in described["results"].values()))
    Console().print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
