"""`kvdrive drive kv put|get|exists|delete|list`: values under keys on a drive, by the NVMe Key Value command set."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kvdrive import private
from kvdrive.cli.command import example
from kvdrive.cli.paths import input_file, output_file
from kvdrive.errors import InputError
from kvdrive.targets.addresses import FORMS, is_address
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.opening import open_named
from kvdrive.targets.options import DriveOptions

app = typer.Typer(no_args_is_help=True, help="Values under keys on a drive, by the NVMe Key Value command set.")

TargetArgument = Annotated[str, typer.Argument(help=f"a drive's file, {FORMS}")]
KeyArgument = Annotated[str, typer.Argument(help="1 to 16 bytes: text, or hex:00ff...")]
IdentityOption = Annotated[
    Path | None,
    typer.Option(callback=input_file, help="TOML file with this host's name and secrets, for drives at tcp://"),
]

_HEX = "hex:"


@app.command(epilog=example("drive kv put big.kv name value.bin"))
def put(
    target: TargetArgument,
    key: KeyArgument,
    file: Annotated[Path | None, typer.Argument(help="the value; default: standard input")] = None,
    new: Annotated[bool, typer.Option("--new", help="fail where the key exists")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="fail where the key does not exist")] = False,
    identity: IdentityOption = None,
) -> None:
    """Store a value; it survives a loss of power when the command returns."""
    if new and replace:
        raise InputError("--new and --replace exclude each other: leave one of them out")
    try:
        value = sys.stdin.buffer.read() if file is None else file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    with _opened(target, identity) as values:
        values.store(key_bytes(key), value, "not-exist" if new else "exist" if replace else None, durable=True)


@app.command(epilog=example("drive kv get big.kv name copy.bin"))
def get(
    target: TargetArgument,
    key: KeyArgument,
    file: Annotated[
        Path | None, typer.Argument(callback=output_file, help="where to write the value; default: standard output")
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="first byte")] = 0,
    identity: IdentityOption = None,
) -> None:
    """Write a value to a file or to standard output."""
    with _opened(target, identity) as values:
        value = values.retrieve(key_bytes(key), offset)
    if file is None:
        sys.stdout.buffer.write(value)
        return
    try:
        private.write_bytes(file, value)
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}") from error


@app.command(epilog=example("drive kv exists big.kv name"))
def exists(target: TargetArgument, key: KeyArgument, identity: IdentityOption = None) -> None:
    """Exit with status 0 if the key exists, with 1 if it does not."""
    with _opened(target, identity) as values:
        found = values.exists(key_bytes(key))
    raise typer.Exit(0 if found else 1)


@app.command(epilog=example("drive kv delete big.kv name"))
def delete(target: TargetArgument, key: KeyArgument, identity: IdentityOption = None) -> None:
    """Forget a key and its value, durably. A key that does not exist is no error."""
    with _opened(target, identity) as values:
        values.delete(key_bytes(key))
        values.flush()


@app.command("list", epilog=example("drive kv list big.kv --sizes"))
def list_keys(
    target: TargetArgument,
    start: Annotated[str, typer.Option(help="first key")] = "",
    sizes: Annotated[bool, typer.Option("--sizes", help="also print the bytes of each value")] = False,
    identity: IdentityOption = None,
) -> None:
    """Print the keys in the order of their bytes: as text where they are printable, else as hex:..."""
    with _opened(target, identity) as values:
        for key in values.keys(key_bytes(start)):
            typer.echo(f"{values.size(key):>12,}  {key_text(key)}" if sizes else key_text(key))


def key_bytes(text: str) -> bytes:
    """A key from the command line. Raises InputError."""
    if not text.startswith(_HEX):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix(_HEX))
    except ValueError as error:
        raise InputError(f"'{text}' is no key: write pairs of hexadecimal digits after {_HEX}") from error


def key_text(key: bytes) -> str:
    """A key as `key_bytes` takes it."""
    text = key.decode("ascii", "replace")
    plain = text.isprintable() and text.isascii() and not text.startswith(_HEX) and text == text.strip()
    return text if plain else _HEX + key.hex()


@contextmanager
def _opened(target: str, identity: Path | None) -> Iterator[KeyValueNamespace]:
    if not is_address(target) and not Path(target).is_file():
        raise InputError(f"there is no drive '{target}': name a drive's file, {FORMS}")
    with open_named(target if is_address(target) else Path(target), DriveOptions(identity=identity)) as group:
        if len(group.drives) != 1:
            raise InputError(f"{target} names {len(group.drives)} drives: name one")
        yield KeyValueNamespace(group.drives[0])
