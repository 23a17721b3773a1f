"""`kvdrive drive serve` and `stats`: a drive in a process of its own, and the counters of such a drive."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from kvdrive._native import Drive, RingServer, Subsystem
from kvdrive.cli.command import JsonFlag
from kvdrive.cli.drive_files import DriveFile, open_existing, serial_of, show
from kvdrive.cli.drive_kv import IdentityOption
from kvdrive.cli.drive_trace import KEPT_EVENTS, write_trace
from kvdrive.cli.fields import EngineOption
from kvdrive.cli.paths import input_file, output_file
from kvdrive.config.sizes import bytes_of
from kvdrive.errors import InputError, TargetError
from kvdrive.kernels.compiled import make_kernels
from kvdrive.nvme.tcp import parse_address, serve_tcp
from kvdrive.targets.addresses import FORMS, is_address, open_address
from kvdrive.targets.served import ServedDrive

_BUFFERS = "64M"


def serve(
    path: DriveFile,
    socket: Annotated[Path | None, typer.Option(help="Unix socket for processes of this machine")] = None,
    nvme_tcp: Annotated[str, typer.Option(metavar="HOST:PORT", help="for NVMe/TCP hosts")] = "",
    hosts: Annotated[
        Path | None,
        typer.Option(
            callback=input_file, help="TOML file of the NVMe/TCP hosts that may come in; default: all of this machine"
        ),
    ] = None,
    buffers: Annotated[
        str, typer.Option(help="memory for data on their way from and to all NVMe/TCP hosts; 1M at least")
    ] = _BUFFERS,
    engine: EngineOption = "fast",
    threads: Annotated[int, typer.Option(min=1, max=256, help="of the engine")] = 1,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="inject KIND[:AFTER[:COUNT[:ARGUMENT]]]: after so many good operations, so many fail; may repeat"
        ),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--trace", callback=output_file, help="write the timeline of modelled device time here at the end"
        ),
    ] = None,
) -> None:
    """Serve a drive to other processes or NVMe/TCP hosts until interrupted; then everything is made durable."""
    if socket is None and not nvme_tcp:
        raise InputError("say where to serve: --socket PATH, --nvme-tcp HOST:PORT, or both")
    if not nvme_tcp and (hosts is not None or buffers != _BUFFERS):
        raise InputError("--hosts and --buffers go with --nvme-tcp: leave them out")
    drive = open_existing(path, engine, threads)
    if engine == "hls":
        make_kernels()
    for text in fault or []:
        _inject(drive, text)
    if timeline is not None:
        drive.keep_trace(KEPT_EVENTS)
    subsystem = Subsystem(drive, serial=serial_of(path))
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stopped.set())
    places = []
    try:
        rings = None if socket is None else RingServer(subsystem, socket)
    except RuntimeError as error:
        raise TargetError(str(error)) from error
    tcp = serve_tcp(subsystem, nvme_tcp, hosts, bytes_of(buffers)) if nvme_tcp else None
    if rings is not None:
        threading.Thread(target=rings.run).start()
        places.append(str(socket))
    if tcp is not None:
        places.append(f"nvme-tcp {parse_address(nvme_tcp)[0]}:{tcp.port}, {subsystem.nqn}")
    typer.echo(f"serving {path} (engine {engine}) at {' and '.join(places)}; Ctrl-C ends it")
    while not stopped.wait(0.2):  # Python handles signals between two waits
        pass
    if rings is not None:
        rings.stop()
    if timeline is not None:
        write_trace(drive, timeline)


def stats(
    address: Annotated[str, typer.Argument(help=f"a served drive: {FORMS}")],
    identity: IdentityOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the counters of a drive that is served elsewhere: its statistics and SMART logs."""
    if not is_address(address):
        raise InputError(f"'{address}' is no address of a served drive: name {FORMS}")
    with open_address(address, identity) as group:
        for drive in group.drives:
            assert isinstance(drive, ServedDrive)  # as all drives at addresses
            show(drive.place, drive.counters(), as_json)


def _inject(drive: Drive, text: str) -> None:
    kind, *numbers = text.split(":")
    if len(numbers) > 3 or not all(number.isdigit() for number in numbers):
        raise InputError(f"'{text}' is no fault: write KIND[:AFTER[:COUNT[:ARGUMENT]]]")
    try:
        drive.inject(kind, *map(int, numbers))
    except ValueError as error:
        raise InputError(str(error)) from error
