"""`kvdrive drive create|info|serve|fsck|stats|trace`: the software drive as a file and as a process."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from kvdrive import abi
from kvdrive._native import Drive, QueuePairs, RingError, RingServer, Subsystem
from kvdrive.drive_trace import QueuedDrive, Shape, Workload, play, replay, steps, stored_queries
from kvdrive.errors import InputError, TargetError
from kvdrive.nvme import admin, wire
from kvdrive.nvme.completions import decode
from kvdrive.nvme.tcp import parse_address, serve_tcp
from kvdrive.sizes import bytes_of

app = typer.Typer(no_args_is_help=True, help="Create, serve and examine software drives.")

_KEPT_EVENTS = 1_000_000  # of a timeline, the latest


class Engine(StrEnum):
    """Who computes inside the drive."""

    fast = "fast"
    hls = "hls"
    rtl = "rtl"


JsonFlag = Annotated[bool, typer.Option("--json", help="machine-readable output")]
DriveFile = Annotated[Path, typer.Argument(help="the drive's backing file")]
Socket = Annotated[Path, typer.Option(help="Unix socket of `kvdrive drive serve`")]


@app.command()
def create(
    path: DriveFile,
    capacity: Annotated[str, typer.Option(help="bytes of K, V and blocks; K, M, G, T for powers of 1024")] = "1G",
    preset: Annotated[str, typer.Option(help="drive to imitate; default: 970pro")] = "",
    force: Annotated[bool, typer.Option(help="forget what an existing drive holds")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a drive: one sparse file."""
    if path.exists() and path.stat().st_size > 0 and not force:
        raise InputError(f"{path} exists: choose another path, or --force to forget what it holds")
    size = bytes_of(capacity)
    with_layout = _open(path, capacity_bytes=size, preset=preset, format=force)
    _show("drive", with_layout.layout(), as_json)


@app.command()
def info(path: DriveFile, as_json: JsonFlag = False) -> None:
    """Show a drive's layout, its sessions and how it introduces itself to hosts."""
    drive = _open_existing(path)
    subsystem = Subsystem(drive, serial=_serial_of(path))
    pairs = QueuePairs(subsystem, 1 << 22)
    identity = _ask(pairs, wire.IdentifyController, admin.identify(wire.Cns.CNS_CONTROLLER))
    shown = ("sn", "mn", "fr", "subnqn", "engine", "engine_mhz", "slm_bytes", "abi_version")
    namespace = _ask(pairs, wire.IdentifyNamespace, admin.identify(wire.Cns.CNS_NAMESPACE, 1))
    found = drive.layout() | {name: identity[name] for name in shown if name != "engine"}
    _show(str(path), found | {"sessions": drive.sessions(), "blocks_used": namespace["nuse"]}, as_json)


@app.command()
def serve(
    path: DriveFile,
    socket: Annotated[Path | None, typer.Option(help="Unix socket for processes of this machine")] = None,
    nvme_tcp: Annotated[str, typer.Option(metavar="HOST:PORT", help="for NVMe/TCP hosts")] = "",
    hosts: Annotated[
        Path | None, typer.Option(help="TOML file of the NVMe/TCP hosts that may come in; default: all of this machine")
    ] = None,
    engine: Annotated[Engine, typer.Option(help="who computes")] = Engine.fast,
    threads: Annotated[int, typer.Option(min=1, max=256, help="of the engine")] = 1,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="inject KIND[:AFTER[:COUNT[:ARGUMENT]]]: after so many good operations, so many fail; may repeat"
        ),
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option("--trace", help="write the timeline of modelled device time here at the end")
    ] = None,
) -> None:
    """Serve a drive to other processes or NVMe/TCP hosts until interrupted; then everything is made durable."""
    if socket is None and not nvme_tcp:
        raise InputError("say where to serve: --socket PATH, --nvme-tcp HOST:PORT, or both")
    drive = _open_existing(path, engine.value, threads)
    for text in fault or []:
        _inject(drive, text)
    if timeline is not None:
        drive.keep_trace(_KEPT_EVENTS)
    subsystem = Subsystem(drive, serial=_serial_of(path))
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stopped.set())
    places = []
    try:
        rings = None if socket is None else RingServer(subsystem, socket)
    except RuntimeError as error:
        raise TargetError(str(error)) from error
    tcp = serve_tcp(subsystem, nvme_tcp, hosts) if nvme_tcp else None
    if rings is not None:
        threading.Thread(target=rings.run).start()
        places.append(str(socket))
    if tcp is not None:
        places.append(f"nvme-tcp {parse_address(nvme_tcp)[0]}:{tcp.port}, {subsystem.nqn}")
    typer.echo(f"serving {path} (engine {engine.value}) at {' and '.join(places)}; Ctrl-C ends it")
    while not stopped.wait(0.2):  # signals are handled between two looks
        pass
    if rings is not None:
        rings.stop()
    if timeline is not None:
        _write_trace(drive, timeline)


@app.command()
def fsck(path: DriveFile, as_json: JsonFlag = False) -> None:
    """Compare a drive's maps, spares and contents. Exit code 1 if they disagree."""
    with Console(stderr=True).status(f"reading {path}"):
        drive = _open_existing(path)
        disagreements = drive.check()
    if as_json:
        typer.echo(json.dumps({"path": str(path), "disagreements": disagreements}))
    else:
        groups = drive.flash_stats()["groups_live"]
        for sentence in disagreements:
            typer.echo(sentence)
        typer.echo(f"{path}: {len(disagreements)} disagreements, {groups:,} groups, {len(drive.sessions())} sessions")
    if disagreements:
        raise typer.Exit(1)


@app.command()
def stats(socket: Socket, as_json: JsonFlag = False) -> None:
    """Show the counters of a served drive: its statistics and SMART logs."""
    try:
        pairs = QueuePairs.connect(socket, 1 << 22)
        found = _ask(pairs, wire.DriveStatistics, admin.get_log_page(wire.LogPage.LOG_STATISTICS, 512))
        smart = _ask(pairs, wire.SmartLog, admin.get_log_page(wire.LogPage.LOG_SMART, 512, retain=True))
    except RuntimeError as error:
        raise TargetError(str(error)) from error
    del found["version"]
    health = ("spare_percent", "used_percent", "media_errors", "error_entries")
    _show(str(socket), found | {name: smart[name] for name in health}, as_json)


@app.command()
def trace(
    path: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="a drive: one decode step over all that it holds")
    ] = None,
    workload: Annotated[
        Workload | None, typer.Option(help="instead of FILE, on a new drive: store K and V, or a decode step over them")
    ] = None,
    out: Annotated[Path, typer.Option(help="where the timeline goes")] = Path("trace.json"),
    preset: Annotated[str, typer.Option(help="of the new drive; default: 970pro")] = "",
    queues: Annotated[int, typer.Option(min=1, max=16, help="I/O queues; a layer's commands take one of them")] = 2,
    layers: Annotated[int, typer.Option(min=1, max=256, help="of the workload")] = 2,
    heads: Annotated[int, typer.Option(min=1, max=255, help="of K and V in a layer")] = 8,
    head_dim: Annotated[int, typer.Option(min=32, max=256, help="elements of a row, a multiple of 32")] = 128,
    tokens: Annotated[int, typer.Option(min=1, max=131072, help="in the cache")] = 4096,
    group: Annotated[int, typer.Option(help="queries of each head: 1, 2, 4, 5 or 8")] = 4,
    ratio: Annotated[int, typer.Option(min=1, help="sparf takes one of so many rows and tokens")] = 8,
    events: Annotated[int, typer.Option(min=1, max=10_000_000, help="the latest so many are kept")] = _KEPT_EVENTS,
    as_json: JsonFlag = False,
) -> None:
    """Write a timeline of modelled device time, which https://ui.perfetto.dev opens.

    It has a track for each channel, die, bus, engine and queue. Times are modelled, not measured: they are the same on
    every machine. What a FILE holds stays as it is.
    """
    if (path is None) == (workload is None):
        raise InputError("say what to trace: a drive's FILE or --workload, one of both")
    if workload is None:
        assert path is not None
        queued = QueuedDrive(_open_existing(path), queues)
        queries = stored_queries(queued.drive)
        work, count = replay(queued, queries, events), len(queries)
        _finish_trace(queued, track(work, str(path), count, console=_bars(), transient=True), out, as_json)
        return
    if head_dim % abi.HEAD_DIM_STEP or group not in abi.GROUP_SIZES:
        raise InputError(f"head dimensions are multiples of {abi.HEAD_DIM_STEP}, groups one of {abi.GROUP_SIZES}")
    shape = Shape(layers, heads, head_dim, tokens, group, ratio)
    with tempfile.TemporaryDirectory(prefix="kvdrive-") as folder:
        drive = _open(Path(folder) / "drive.kv", capacity_bytes=3 * shape.kv_bytes + (1 << 26), preset=preset)
        queued = QueuedDrive(drive, queues)
        work, count = play(queued, workload, shape, events), steps(workload, shape)
        _finish_trace(queued, track(work, workload.value, count, console=_bars(), transient=True), out, as_json)


def _finish_trace(queued: QueuedDrive, work: Iterable[None], out: Path, as_json: bool) -> None:
    for _ in work:
        pass
    events = _write_trace(queued.drive, out)
    tracks, microseconds = _summary(out)
    found = {"out": str(out), "events": events, "modelled_device_us": microseconds}
    if as_json:
        typer.echo(json.dumps(found | {"tracks": tracks}))
    else:
        _show("timeline", found | {f"tracks: {kind}": count for kind, count in tracks.items()}, as_json)


def _write_trace(drive: Drive, out: Path) -> int:
    try:
        return drive.write_trace(out)
    except RuntimeError as error:
        raise TargetError(str(error)) from error


def _summary(path: Path) -> tuple[dict[str, int], float]:
    """How many tracks of each kind a timeline has, and the us that it spans."""
    events = json.loads(path.read_text())["traceEvents"]
    kinds = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    spans = [event for event in events if event["ph"] == "X"]
    end = max((event["ts"] + event["dur"] for event in spans), default=0.0)
    tracks = Counter(kinds[event["pid"]] for event in events if event["name"] == "thread_name")
    return dict(tracks), round(end - min((event["ts"] for event in spans), default=0.0), 3)


def _bars() -> Console:
    return Console(stderr=True)


def _open(path: Path, engine: str = "fast", threads: int = 1, **options: Any) -> Drive:
    try:
        return Drive(path, engine, threads, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise TargetError(str(error)) from error


def _open_existing(path: Path, engine: str = "fast", threads: int = 1) -> Drive:
    if not path.is_file():
        raise InputError(f"there is no drive at {path}: `kvdrive drive create` makes one")
    return _open(path, engine, threads)


def _ask(pairs: QueuePairs, layout: Any, command: Any) -> dict[str, Any]:
    try:
        reply = decode(*pairs.execute(0, command.entry, command.data, command.room)).check(command.opcode)
    except RingError as error:
        raise TargetError(str(error)) from error
    return admin.decode(layout, reply.data)


def _show(title: str, values: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(values))
        return
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in values.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)


def _serial_of(path: Path) -> str:
    """The same for the same file, however it is named: device and inode."""
    status = path.stat()
    return f"KV{status.st_dev:x}{status.st_ino:x}".upper()[:20]


def _inject(drive: Drive, text: str) -> None:
    kind, *numbers = text.split(":")
    if len(numbers) > 3 or not all(number.isdigit() for number in numbers):
        raise InputError(f"'{text}' is no fault: write KIND[:AFTER[:COUNT[:ARGUMENT]]]")
    try:
        drive.inject(kind, *map(int, numbers))
    except ValueError as error:
        raise InputError(str(error)) from error
