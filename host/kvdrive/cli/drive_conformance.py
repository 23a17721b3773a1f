"""`kvdrive drive conformance`: a drive against the specification of its commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kvdrive import private
from kvdrive.cli.command import JsonFlag
from kvdrive.cli.fields import EngineOption
from kvdrive.cli.paths import input_file, output_file
from kvdrive.conformance import suite
from kvdrive.conformance.bench import MismatchError
from kvdrive.conformance.device import Device, OwnDevice, open_address
from kvdrive.errors import InputError, TargetError
from kvdrive.nvme.command_set import COMMANDS
from kvdrive.nvme.fabrics.association import RemoteOptions
from kvdrive.nvme.fabrics.identity import host_identity
from kvdrive.targets.addresses import FORMS, is_address
from kvdrive.targets.cpu import PLAIN
from kvdrive.targets.opening import drive_folder

_NEW = {"emulator": "", "cpu": PLAIN}  # preset of a new drive


def conformance(
    target: Annotated[str, typer.Argument(help=f"emulator, cpu, a drive's file, {FORMS}")],
    only: Annotated[list[str] | None, typer.Option(help="check this command only; may repeat")] = None,
    destroy: Annotated[
        bool, typer.Option("--destroy", help="also check FORMAT_NVM and SANITIZE, which erase everything on the drive")
    ] = False,
    engine: EngineOption = "fast",
    identity: Annotated[
        Path | None,
        typer.Option(callback=input_file, help="TOML file with this host's name and secrets, for drives at tcp://"),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(callback=output_file, help="write the report as JSON here, too")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check every command of a drive against docs/reference/command-set.md. Exit status 1 if a check fails.

    The checks use sessions of their own, the last 64 blocks, which they restore, and drive memory, whose contents are
    lost. Nobody else should use the drive at the same time. `emulator` and `cpu` make a new drive and check most.
    """
    commands = [name.upper() for name in only or []]
    if unknown := sorted(set(commands) - set(COMMANDS)):
        raise InputError(f"there is no command {unknown[0]}: choose {', '.join(COMMANDS)}")
    console = Console(stderr=True)
    with _opened(target, engine, identity, destroy) as device, console.status("connecting") as status:
        try:
            found = suite.run(device, commands, status.update)
            found.target = target
        except MismatchError as error:
            raise TargetError(f"{target} cannot be checked: {error}") from error
    values = found.as_json()
    if report is not None:
        private.write_text(report, json.dumps(values, indent=1) + "\n")
    if as_json:
        typer.echo(json.dumps(values))
    else:
        _show(found)
    raise typer.Exit(0 if found.conforms else 1)


@contextmanager
def _opened(target: str, engine: str, identity: Path | None, destroy: bool) -> Iterator[Device]:
    """The drive to check. Raises InputError, TargetError."""
    if identity is not None and not target.startswith("tcp://"):
        raise InputError("only drives at tcp:// ask who this host is: leave --identity out")
    with drive_folder(None) as folder:
        device: Device
        if is_address(target):
            if "," in target:
                raise InputError("name one drive: each is checked alone")
            if engine != "fast":
                raise InputError(f"{target} has an engine of its own: leave --engine out")
            device = open_address(target, RemoteOptions(identity=host_identity(identity)), destroy=destroy)
        elif target in _NEW:
            device = OwnDevice(folder / "drive.kv", engine, fresh=True, preset=_NEW[target])
        elif Path(target).is_file():
            device = OwnDevice(Path(target), engine, destroy=destroy)
        else:
            raise InputError(f"there is no drive '{target}': choose emulator, cpu, a drive's file, {FORMS}")
        try:
            yield device
        finally:
            device.close()


def _show(found: suite.Report) -> None:
    table = Table(title=f"{found.target}: {found.identity['mn']}, engine {found.identity['engine']}")
    for name in ("command", "passed", "failed", "skipped", "statuses answered"):
        table.add_column(name, justify="left" if name == "command" else "right")
    for name, outcomes in found.outcomes.items():
        if not outcomes:
            continue
        counts = [sum(one.state == state for one in outcomes) for state in ("passed", "failed", "skipped")]
        listed = set(COMMANDS[name].statuses)
        answered = f"{len(found.seen[name] & listed)} of {len(listed)}"
        table.add_row(name, *(str(count) if count else "-" for count in counts), answered)
    console = Console()
    console.print(table)
    for state in ("failed", "skipped"):
        for name, outcomes in found.outcomes.items():
            for one in outcomes:
                if one.state == state:
                    console.print(f"{state}: {name}: {one.sentence}: {one.reason}", soft_wrap=True, markup=False)
    verdict = "conforms" if found.conforms else "does not conform"
    counts_text = ", ".join(f"{found.count(state)} {state}" for state in ("passed", "failed", "skipped"))
    console.print(f"{found.target} {verdict}: {counts_text}", soft_wrap=True, markup=False)
