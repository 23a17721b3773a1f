"""`kvdrive drive create|info|serve|fsck|recover|erase|stats|trace|conformance|kv`: drives as files and as processes."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from kvdrive import abi
from kvdrive._native import Drive, QueuePairs, RingError, Subsystem
from kvdrive.cli.command import JsonFlag, example
from kvdrive.cli.drive_conformance import conformance
from kvdrive.cli.drive_files import DriveFile, open_drive, open_existing, serial_of, show
from kvdrive.cli.drive_kv import app as kv
from kvdrive.cli.drive_salvage import fsck, recover
from kvdrive.cli.drive_served import serve, stats
from kvdrive.cli.drive_trace import trace
from kvdrive.config.sizes import bytes_of
from kvdrive.errors import InputError, TargetError
from kvdrive.nvme import admin, commands, wire
from kvdrive.nvme.completions import Completion, decode

app = typer.Typer(no_args_is_help=True, help="Create, serve and examine software drives.")
app.command(epilog=example("drive trace --workload exact --out trace.json"))(trace)
app.command(epilog=example("drive fsck big.kv"))(fsck)
app.command(epilog=example("drive recover damaged.kv new.kv"))(recover)
app.command(epilog=example("drive conformance emulator"))(conformance)
app.add_typer(kv, name="kv")


_MOST_ERASES = 1_000_000


@app.command(epilog=example("drive create big.kv --capacity 500G"))
def create(
    path: DriveFile,
    capacity: Annotated[str, typer.Option(help="bytes of K, V and blocks; K, M, G, T for powers of 1024")] = "1G",
    preset: Annotated[str, typer.Option(help="drive to imitate; default: 970pro")] = "",
    staged_budget: Annotated[str, typer.Option(help="drive memory for rows that do not fill a page yet")] = "256M",
    session_budget: Annotated[str, typer.Option(help="flash that one session may take; 0: no limit")] = "0",
    metadata_budget: Annotated[
        str, typer.Option(help="drive memory for maps; default: a byte for each page of the capacity and 16M")
    ] = "",
    worn_erases: Annotated[int, typer.Option(help="erases that each block has behind it already")] = 0,
    force: Annotated[bool, typer.Option(help="forget what an existing drive holds")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a drive: one sparse file."""
    if path.exists() and path.stat().st_size > 0 and not force:
        raise InputError(f"{path} exists: choose another path, or --force to forget what it holds")
    if not 0 <= worn_erases <= _MOST_ERASES:
        raise InputError(f"--worn-erases is a number from 0 to {_MOST_ERASES}: flash does not last longer")
    staged = bytes_of(staged_budget)
    if staged < abi.PAGE_BYTES:
        raise InputError(f"--staged-budget must be {abi.PAGE_BYTES} at least: rows wait there until they fill a page")
    drive = open_drive(
        path,
        capacity_bytes=bytes_of(capacity),
        preset=preset,
        format=force,
        staged_bytes=staged,
        session_bytes=bytes_of(session_budget),
        metadata_bytes=bytes_of(metadata_budget) if metadata_budget else None,
        worn_erases=worn_erases,
    )
    show("drive", drive.layout() | _budgets(drive, as_json), as_json)


@app.command(epilog=example("drive info big.kv"))
def info(path: DriveFile, as_json: JsonFlag = False) -> None:
    """Show a drive's layout, its sessions and how it introduces itself to hosts. Never writes."""
    drive = open_existing(path, read_only=True)
    subsystem = Subsystem(drive, serial=serial_of(path))
    pairs = QueuePairs(subsystem, 1 << 22)
    identity = _ask(pairs, wire.IdentifyController, admin.identify(wire.Cns.CNS_CONTROLLER))
    shown = ("sn", "mn", "fr", "subnqn", "engine", "engine_mhz", "slm_bytes", "abi_version")
    namespace = _ask(pairs, wire.IdentifyNamespace, admin.identify(wire.Cns.CNS_NAMESPACE, 1))
    found = drive.layout() | _budgets(drive, as_json) | {name: identity[name] for name in shown if name != "engine"}
    found |= {"sessions": drive.sessions(), "blocks_used": namespace["nuse"]}
    found["file_bytes_on_disk"] = path.stat().st_blocks * 512  # the file is sparse
    show(str(path), found | ({"notices": drive.notices()} if drive.notices() or as_json else {}), as_json)


app.command(epilog=example("drive serve big.kv --socket big.sock"))(serve)


@app.command(epilog=example("drive erase big.kv 3"))
def erase(
    path: DriveFile,
    sessions: Annotated[list[int] | None, typer.Argument(help="their numbers; `kvdrive drive info` lists them")] = None,
    everything: Annotated[bool, typer.Option("--all", help="sanitize: all sessions and blocks")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Forget sessions and leave no byte of them in the file; what forks of them share stays."""
    if bool(sessions) == everything:
        raise InputError("say what to erase: numbers of sessions, or --all")
    drive = open_existing(path)
    pairs = QueuePairs(Subsystem(drive), 1 << 22)
    unknown = sorted(set(sessions or []) - set(drive.sessions()))
    if unknown:
        raise InputError(f"{path} has no session {unknown[0]}: `kvdrive drive info` lists them; nothing was erased")
    before = drive.flash_stats()["erases"]
    with Console(stderr=True).status(f"erasing in {path}"):
        if everything and _completion(pairs, 0, admin.sanitize()).status:
            raise TargetError(f"{path} could not be sanitized: its data are removed but not erased; erase it again")
        for session in dict.fromkeys(sessions or []):
            _send(pairs, 1, commands.session_erase(session))
    blocks = drive.flash_stats()["erases"] - before
    show(str(path), {"blocks_erased": blocks, "sessions": drive.sessions()}, as_json)


app.command(epilog=example("drive stats big.sock"))(stats)


def _budgets(drive: Drive, as_json: bool) -> dict[str, Any]:
    """Capacities in bytes with the bytes in use; erase counts of the least and the most worn block."""
    stats = drive.flash_stats()
    session = stats["session_groups"] * abi.PAGE_BYTES
    return {
        "staged_budget_bytes": stats["staged_budget"],
        "staged_bytes": stats["staged_bytes"],
        "session_budget_bytes": session if session or as_json else "no limit",
        "metadata_budget_bytes": stats["metadata_budget"],
        "metadata_bytes": stats["metadata_bytes"],
        "least_erases": stats["least_erases"],
        "most_erases": stats["most_erases"],
    }


def _send(pairs: QueuePairs, queue: int, command: commands.Command) -> Completion:
    return _completion(pairs, queue, command).check(command.opcode)


def _completion(pairs: QueuePairs, queue: int, command: commands.Command) -> Completion:
    try:
        return decode(*pairs.execute(queue, command.entry, command.data, command.room))
    except RingError as error:
        raise TargetError(str(error)) from error


def _ask(pairs: QueuePairs, layout: Any, command: commands.Command) -> dict[str, Any]:
    return admin.decode(layout, _send(pairs, 0, command).data)
