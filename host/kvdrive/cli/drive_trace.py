"""`kvdrive drive trace`: timelines of modelled device time."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from kvdrive import abi
from kvdrive._native import Drive
from kvdrive.cli.command import JsonFlag
from kvdrive.cli.drive_files import open_drive, open_existing, show
from kvdrive.cli.paths import output_file
from kvdrive.errors import InputError, TargetError
from kvdrive.perf.workloads import QueuedDrive, Shape, Workload, play, replay, steps, stored_queries

KEPT_EVENTS = 1_000_000  # a timeline keeps this many of its latest events
_SHAPE = (2, 8, 128, 4096, 4, 8)  # of a workload: layers, heads, head dimension, tokens, group, ratio


def trace(
    path: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="a drive: one decode step over all that it holds")
    ] = None,
    workload: Annotated[
        Workload | None, typer.Option(help="instead of FILE, on a new drive: store K and V, or a decode step over them")
    ] = None,
    out: Annotated[Path, typer.Option(callback=output_file, help="where the timeline goes")] = Path("trace.json"),
    preset: Annotated[str, typer.Option(help="of the new drive; default: 970pro")] = "",
    queues: Annotated[int, typer.Option(min=1, max=16, help="I/O queues; a layer's commands take one of them")] = 2,
    layers: Annotated[int, typer.Option(min=1, max=256, help="of the workload")] = _SHAPE[0],
    heads: Annotated[int, typer.Option(min=1, max=255, help="of K and V in a layer")] = _SHAPE[1],
    head_dim: Annotated[int, typer.Option(min=8, max=256, help="elements of a row, a multiple of 8")] = _SHAPE[2],
    tokens: Annotated[int, typer.Option(min=1, max=131072, help="in the cache")] = _SHAPE[3],
    group: Annotated[int, typer.Option(help="queries of each head: 1 to 16, or a multiple of 8 up to 128")] = _SHAPE[4],
    ratio: Annotated[int, typer.Option(min=1, help="sparf takes one of so many rows and tokens")] = _SHAPE[5],
    events: Annotated[int, typer.Option(min=1, max=10_000_000, help="the latest so many are kept")] = KEPT_EVENTS,
    as_json: JsonFlag = False,
) -> None:
    """Write a timeline of modelled device time, which https://ui.perfetto.dev opens.

    It has a track for each channel, die, bus, engine and queue. Times are modelled, not measured: they are the same on
    every machine. What a FILE holds stays as it is.
    """
    if (path is None) == (workload is None):
        raise InputError("say what to trace: a drive's FILE or --workload, one of both")
    shape_of_workload = (preset, layers, heads, head_dim, tokens, group, ratio)
    if workload is None and shape_of_workload != ("", *_SHAPE):
        raise InputError("a FILE has a preset and a shape of its own: leave the options of --workload out")
    if workload is None:
        assert path is not None
        queued = QueuedDrive(open_existing(path), queues)
        queries = stored_queries(queued.drive)
        work, count = replay(queued, queries, events), len(queries)
        _finish_trace(queued, track(work, str(path), count, console=_bars(), transient=True), out, as_json)
        return
    if head_dim % abi.COMMAND_HEAD_DIM_STEP or group not in abi.COMMAND_GROUPS:
        raise InputError("head dimensions are multiples of 8, groups 1 to 16 or multiples of 8 up to 128")
    shape = Shape(layers, heads, head_dim, tokens, group, ratio)
    with tempfile.TemporaryDirectory(prefix="kvdrive-") as folder:
        drive = open_drive(Path(folder) / "drive.kv", capacity_bytes=3 * shape.kv_bytes + (1 << 26), preset=preset)
        queued = QueuedDrive(drive, queues)
        work, count = play(queued, workload, shape, events), steps(workload, shape)
        _finish_trace(queued, track(work, workload.value, count, console=_bars(), transient=True), out, as_json)


def _finish_trace(queued: QueuedDrive, work: Iterable[None], out: Path, as_json: bool) -> None:
    for _ in work:
        pass
    events = write_trace(queued.drive, out)
    tracks, begin, end = _summary(out)
    found = {"out": str(out), "events": events, "modelled_device_us": round(end - begin, 3)}
    found |= {"modelled_from_us": begin, "modelled_to_us": end}
    if as_json:
        typer.echo(json.dumps(found | {"tracks": tracks}))
    else:
        show("timeline", found | {f"tracks: {kind}": count for kind, count in tracks.items()}, as_json)


def write_trace(drive: Drive, out: Path) -> int:
    """Write a drive's timeline and return the number of its events. Raises TargetError."""
    try:
        return drive.write_trace(out)
    except RuntimeError as error:
        raise TargetError(str(error)) from error


def _summary(path: Path) -> tuple[dict[str, int], float, float]:
    """The number of tracks of each kind in a timeline, and the device time that it covers in us."""
    events = json.loads(path.read_text())["traceEvents"]
    kinds = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    spans = [event for event in events if event["ph"] == "X"]
    end = max((event["ts"] + event["dur"] for event in spans), default=0.0)
    tracks = Counter(kinds[event["pid"]] for event in events if event["name"] == "thread_name")
    return dict(tracks), round(min((event["ts"] for event in spans), default=0.0), 3), round(end, 3)


def _bars() -> Console:
    return Console(stderr=True)
