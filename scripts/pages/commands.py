"""docs/reference/cli.md: every command with its arguments and options, from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from kvdrive.cli.fields import with_flags
from kvdrive.cli.main import app
from kvdrive.config.text import OPTIONS
from kvdrive.tree import ROOT

PAGE = ROOT / "docs/reference/cli.md"
HEAD = """\
# Commands

Written by `make pages` from the command line itself; `kvdrive COMMAND --help` says the same, in panels. Options of a
run (model, target, policy, format, placement, weights, sessions, limits) are the same for all commands that have them:
[what works with what](options.md) explains each, and here a command lists which it has. `--json` prints the result as
JSON. Errors are one sentence on stderr with exit status 2; after ^C the status is 130. `kvdrive --install-completion`
completes commands and options in the shell.
"""
_RENAMED = {with_flags(f"`{name}`"): with_flags(about.help) for name, (_, _, about) in OPTIONS.items()}


def page() -> str:
    """The page: groups in the order of `kvdrive --help`."""
    return "\n".join([HEAD, *sections(get_command(app), "kvdrive")]).rstrip() + "\n"


def sections(command: Any, name: str) -> Iterator[str]:
    """A section for a command; for a group, those of its commands."""
    if hasattr(command, "commands"):
        for below, one in command.commands.items():
            yield from sections(one, f"{name} {below}")
        return
    shown = f" Example: `{command.epilog.removeprefix('Example: ')}`." if command.epilog else ""
    yield from (f"## {name}", " ".join((command.help or "").split("\f")[0].split()) + shown, "")
    rows = [row(one) for one in command.params if not of_a_run(one) and one.name not in ("help", "as_json")]
    if shared := [f"`{flags(one)}`" for one in command.params if of_a_run(one)]:
        rows.append(f"- of a run: {', '.join(shared)}")
    yield from (*rows, "")


def of_a_run(one: Any) -> bool:
    """True for the flag of a field of `RunConfig`."""
    return one.name in OPTIONS or (f"--{one.name.replace('_', '-')}" in _RENAMED and one.help in _RENAMED.values())


def row(one: Any) -> str:
    """An argument or option of a command's own."""
    argument = one.param_type_name == "argument"
    name = str(one.name).upper() if argument else flags(one)
    value = "needed" if one.required else default(one)
    return f"- `{name}`{f' ({value})' if value else ''}: {one.help or ''}".rstrip(": ")


def flags(one: Any) -> str:
    """The flags of an option, as they are typed."""
    return ", ".join([*one.opts, *one.secondary_opts])


def default(one: Any) -> str:
    """What holds when nothing is said; empty where that is nothing."""
    value = one.default
    if value is None or value is False or value in ("", [], ()) or callable(value):
        return ""
    return f"`{value}`"


def texts() -> dict[Path, str]:
    """The page."""
    return {PAGE: page()}
