"""From flags to the fields of a `RunConfig`, and back: the library speaks of fields, the command line of flags."""

from __future__ import annotations

import re
from collections.abc import Collection
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

import typer

from kvdrive.choices import ENGINES, TARGETS
from kvdrive.cli.paths import input_file, output_folder
from kvdrive.config.run import FIELDS, RunConfig
from kvdrive.config.text import OPTIONS, flag_of, named

PANELS = {
    "model": "Model",
    "target": "Storage",
    "policy": "Attention",
    "placement": "Storage",
    "limits": "Attention",
    "drafting": "Model",
    "weights": "Weights",
}  # of --help; common options, which have a letter, are shown before all panels
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
        self.names = [name for name in named(*names) if name not in without]
        self.checked = [name for name in self.names if name not in unchecked]

    def parameters(self) -> list[Parameter]:
        """The flags as typer's parameters."""
        return [_parameter(name) for name in self.names]


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
