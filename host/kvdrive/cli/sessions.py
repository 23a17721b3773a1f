"""`kvdrive sessions list|show|pin|drop|export|import|gc|stats`: the conversations that a drive stores."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kvdrive.cli.command import JsonFlag, example
from kvdrive.cli.drive_files import show
from kvdrive.cli.paths import input_file, output_file
from kvdrive.cli.stored_sessions import open_index, open_stored
from kvdrive.errors import InputError
from kvdrive.prefix.owner import is_alive

if TYPE_CHECKING:
    from kvdrive.prefix.entry import Entry
    from kvdrive.prefix.index import Index

app = typer.Typer(no_args_is_help=True, help="The conversations that drives store.")

Place = Annotated[str, typer.Argument(help="a drive's file, the folder of --drive, or an address as of --target")]
Which = Annotated[str, typer.Argument(help="name or number of a session; `list` shows both")]
Tenant = Annotated[str, typer.Option(help="whose sessions")]


@app.command("list", epilog=example("sessions list drives"))
def list_(place: Place, tenant: Tenant = "", as_json: JsonFlag = False) -> None:
    """List the sessions, the last used first."""
    with open_index(place) as index:
        rows = [_row(entry, index.now) for entry in index.entries(tenant)]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = Table("number", "name", "tokens", "MiB", "last used", "uses", "state")
    for row in rows:
        state = ", ".join(word for word in ("pinned", "open") if row[word])
        cells = (row["number"], row["name"], row["tokens"], f"{row['bytes'] / 2**20:.1f}", _ago(row["age_seconds"]))
        table.add_row(*map(str, cells), str(row["uses"]), state)
    Console().print(table)


@app.command("show", epilog=example("sessions show drives talk"))
def show_(place: Place, session: Which, tenant: Tenant = "", as_json: JsonFlag = False) -> None:
    """Show what the index knows of a session."""
    with open_index(place) as index:
        entry = _find(index, session, tenant)
        values = _row(entry, index.now) | {
            "model": entry.model,
            "blocks": entry.tokens // entry.block,
            "block tokens": entry.block,
            "bytes per token": entry.bytes_per_token,
            "on the drives": " ".join(f"{drive}:{number}" for drive, number, *_ in entry.slices),
        }
    show(f"session {session}", values, as_json)


@app.command(epilog=example("sessions pin drives talk"))
def pin(
    place: Place,
    session: Which,
    off: Annotated[bool, typer.Option("--off", help="bounds apply to it again")] = False,
    tenant: Tenant = "",
) -> None:
    """Keep a session whatever the bounds say."""
    with open_index(place) as index, index.transaction():
        index.set(_find(index, session, tenant).id, pinned=not off)


@app.command(epilog=example("sessions drop drives talk 7"))
def drop(
    place: Place, session: Annotated[list[str], typer.Argument(help="names or numbers")], tenant: Tenant = ""
) -> None:
    """Remove sessions. What others share stays."""
    with open_stored(place) as stored:
        entries = [_find(stored.index, one, tenant) for one in session]
        for entry in entries:
            _require_closed(entry)
        typer.echo(f"{stored.drop([entry.id for entry in entries])} sessions removed")


@app.command("export", epilog=example("sessions export drives talk talk.session"))
def export_(
    place: Place, session: Which, file: Annotated[Path, typer.Argument(callback=output_file)], tenant: Tenant = ""
) -> None:
    """Write a session to a file, for another drive or machine."""
    from kvdrive.prefix.transfer import export

    with open_stored(place) as stored:
        entry = _find(stored.index, session, tenant)
        size = export(stored, entry, file)
    typer.echo(f"{file}: {entry.tokens} tokens, {size / 2**20:.1f} MiB of K and V")


@app.command("import", epilog=example("sessions import drives talk.session"))
def import_(
    place: Place,
    file: Annotated[Path, typer.Argument(callback=input_file)],
    name: Annotated[str, typer.Option(help="instead of the name in the file")] = "",
) -> None:
    """Store a session from a file on a drive."""
    from kvdrive.prefix.transfer import import_file

    with open_stored(place) as stored:
        typer.echo(f"session {import_file(stored, file, name)}")


@app.command(epilog=example("sessions gc drives --days 30"))
def gc(
    place: Place, days: Annotated[float, typer.Option(min=0, help="remove what nobody used for so long")] = 0
) -> None:
    """Remove old sessions, and what killed processes left on a drive that no other process uses."""
    from kvdrive.prefix.rebuild import collect

    with open_stored(place) as stored:
        index = stored.index
        limit = index.now - days * 86_400
        old = [one.id for one in index.entries() if days and one.used < limit and not one.pinned and not one.owner]
        removed = stored.drop(old)
        alone = all(queue.target.exclusive for queue in stored.backing.queues)
        orphans = collect(index, stored.backing) if alone else 0
    typer.echo(f"{removed} old sessions removed, {orphans} that no index names")


@app.command(epilog=example("sessions stats drives --quota 20G"))
def stats(
    place: Place,
    as_json: JsonFlag = False,
    tenant: Tenant = "",
    quota: Annotated[str, typer.Option(help="set the most bytes of this tenant; K, M, G, T; 0: none")] = "",
) -> None:
    """Show how much is stored, how much was written for it, and how often it was used."""
    from kvdrive.config.sizes import bytes_of
    from kvdrive.prefix.wear import Governor

    with open_index(place) as index:
        if quota:
            with index.transaction():
                index.set_quota(tenant, bytes_of(quota))
        wear = Governor(index.accounts).wear()
        values: dict[str, Any] = {
            "sessions": index.count(),
            "blocks": index.blocks(),
            "bytes": index.accounts.bytes(),
            "bytes of the tenant": index.accounts.bytes(tenant),
            "quota of the tenant": index.accounts.quota(tenant),
            "bytes written": wear.bytes_written,
            "bytes written today": wear.bytes_today,
            "hits": wear.hits,
            "bytes written per hit": None if wear.bytes_per_hit is None else round(wear.bytes_per_hit),
            "not stored, for wear": wear.refused,
        }
    show(f"sessions on {place}", values, as_json)


def _find(index: Index, wanted: str, tenant: str) -> Entry:
    entry = index.look_up(wanted, tenant)
    if entry is None:
        raise InputError(f"there is no session '{wanted}': `kvdrive sessions list` shows them")
    return entry


def _require_closed(entry: Entry) -> None:
    if is_alive(entry.owner):
        raise InputError(f"session {entry.name or entry.id} is in use: end that process first")


def _row(entry: Entry, now: float) -> dict[str, Any]:
    return {
        "number": entry.id,
        "name": entry.name,
        "tokens": entry.tokens,
        "bytes": entry.bytes,
        "created": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.created)),
        "age_seconds": max(round(now - entry.used), 0),
        "uses": entry.uses,
        "pinned": entry.pinned,
        "open": is_alive(entry.owner),
    }


def _ago(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
