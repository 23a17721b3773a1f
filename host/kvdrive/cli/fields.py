"""From flags to the fields of a `RunConfig`, and back: the library speaks of fields, the command line of flags."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import Field
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

import typer

from kvdrive.choices import ENGINES, TARGETS
from kvdrive.cli.paths import input_file, output_folder
from kvdrive.config.option import About, about
from kvdrive.config.run import FIELDS, GROUPS, RunConfig
from kvdrive.errors import InputError
from kvdrive.policies import entry_of

PANELS = {
    "model": "Model",
    "target": "Storage",
    "policy": "Attention",
    "placement": "Storage",
    "limits": "Attention",
    "weights": "Weights",
}  # of --help; common options, which have a letter, are shown before all panels
OPTIONS: dict[str, tuple[str, Field[Any], About]] = {
    name: (group, one, what) for group, names in GROUPS.items() for name, one in names.items() if (what := about(one))
}
_CHECKS = {"file": input_file, "folder": output_folder}
_NAME = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")  # as the library's sentences name fields, some with a value

if TYPE_CHECKING:
    EngineName: TypeAlias = str
else:
    EngineName = Literal[tuple(ENGINES)]
EngineOption = Annotated[EngineName, typer.Option(help=OPTIONS["engine"][2].help)]  # of commands without a model


class Fields:
    """Stands in the annotation of a command's `RunConfig`: which options become flags.

    `names`: groups of `RunConfig`, or fields; `without`: fields of those groups that the command does not have. Of
    `unchecked` the command says itself when they have an effect.
    """

    def __init__(self, *names: str, without: Collection[str] = (), unchecked: Collection[str] = ()) -> None:
        wanted = [one for name in names for one in GROUPS.get(name, [name])]
        self.names = [one for one in wanted if one in OPTIONS and one not in without]
        self.unchecked = unchecked

    def parameters(self) -> list[Parameter]:
        """The flags as typer's parameters."""
        return [_parameter(name) for name in self.names]

    def read(self, typed: Mapping[str, Any]) -> dict[str, Any]:
        """The values of fields, from what is typed for each flag. Raises InputError."""
        given = {}
        for name in self.names:
            what = OPTIONS[name][2]
            value = typed[flag_of(name)]
            given[name] = what.read(value) if what.read else value
        policy, entry, _ = entry_of(given.get("attention", "exact"))
        if policy != "exact" and not entry.takes and "ratio" in given and given["ratio"] is None:
            raise InputError(f"`attention={policy}` reads everything without a ratio: give one, as `ratio=1/8`")
        return given

    def check_effects(self, typed: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """Raises InputError for a flag that was typed and has no effect beside the others, whose values are `given`."""
        for name in self.names:
            _, one, what = OPTIONS[name]
            if what.needs and name not in self.unchecked and typed[flag_of(name)] != what.default(one):
                what.needs.check(name, given)


def flag_of(name: str) -> str:
    """A field's flag, as a parameter's name."""
    if name == "sessions":
        return "session"
    return (name in OPTIONS and OPTIONS[name][2].flag) or name


def with_flags(sentence: str, own: Collection[str] = ()) -> str:
    """A sentence of the library with flags in place of fields; `own`: options of the command that are no fields."""

    def flag(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in FIELDS and name not in own:
            return found[0]
        return " ".join([f"--{flag_of(name).replace('_', '-')}", *([value] if value else [])])

    return _NAME.sub(flag, sentence)


def kept_drives(config: RunConfig) -> str:
    """What is left of the drives of a command that ^C has stopped."""
    if config.target.target not in TARGETS:
        return f"the drive at {config.target.target} holds what it held before"
    if config.target.folder is not None:
        return f"the drives in {config.target.folder} hold what they held before"
    return "no drive is left behind"


def _parameter(name: str) -> Parameter:
    group, one, what = OPTIONS[name]
    flag = flag_of(name)
    kind: Any = get_type_hints(type(getattr(RunConfig(), group)))[name]
    if what.choices:
        kind = Literal[what.choices]
    elif what.read:
        kind = str
    names = [f"--{flag.replace('_', '-')}", *([f"-{what.short}"] if what.short else [])]
    shown = typer.Option(
        *names,
        help=with_flags(what.help),
        metavar=what.metavar,
        min=what.low,
        max=what.high,
        callback=_CHECKS[what.path] if what.path else None,
        rich_help_panel=None if what.short else PANELS[group],
    )
    return Parameter(flag, Parameter.KEYWORD_ONLY, default=what.default(one), annotation=Annotated[kind, shown])
