"""Commands of the command line: their flags are the fields of a `RunConfig`, and options of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from kvdrive.cli.fields import Fields, with_flags
from kvdrive.cli.paths import output_folder
from kvdrive.config import text
from kvdrive.config.option import Needs
from kvdrive.config.run import RunConfig
from kvdrive.errors import KvdriveError, Stopped

PANELS = {
    "Model": ("prompt_tokens", "batch", "models_memory", "model_idle"),
    "Server": (
        *("keys", "open_metrics", "unknown_fields", "max_prompt_tokens", "max_tokens", "queue"),
        *("concurrency", "max_batch", "prefill_chunk", "clamp_max_tokens", "deadline"),
    ),
    "Sessions": ("idle", "tenant", "session_days", "session_bytes", "daily_writes", "eviction"),
    "Output": ("temperature", "top_k", "top_p", "seed", "ignore_stop", "check", "verbose", "report"),
}  # of --help, for options of single commands
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
_CONFIG = "config"  # the parameter that holds the fields
OUTPUT = "Output"
ReportFolder = Annotated[
    Path | None,
    typer.Option(
        "--report",
        "-o",
        callback=output_folder,
        help="folder for the figures and the numbers behind them",
        rich_help_panel=OUTPUT,
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="print the result as JSON", rich_help_panel=OUTPUT)]


class Group:
    """Stands in the annotation of a command's parameter: each field of its dataclass is a flag."""


def example(arguments: str) -> str:
    """The line under a command's --help."""
    return f"Example: kvdrive {arguments}"


def command(
    app: typer.Typer, name: str | None = None, shown: str = "", kept: Callable[[dict[str, Any]], str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `app.command(name)`, but `config`, with `Fields` in its annotation, becomes a flag for each of them, and a
    parameter with `Group` one for each field of its dataclass.

    `shown`: the example of --help. `kept`: from the arguments of a command that ^C has stopped, what is left.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        options = _annotated(hints.get(_CONFIG), Fields) or Fields()
        parts = {
            one.name: _flags(one.replace(annotation=hints[one.name], kind=Parameter.KEYWORD_ONLY))
            for one in signature(function).parameters.values()
            if one.name != _CONFIG
        }
        own = [one for several in parts.values() for one in several]
        for one in own:
            if option := _annotated(one.annotation, OptionInfo):
                option.rich_help_panel = option.rich_help_panel or _PANEL_OF.get(one.name)
        flags = options.parameters()

        @wraps(function)
        def call(**values: Any) -> None:
            arguments = {name: _argument(hints[name], name, values) for name in parts}
            try:
                given = text.values(options.names, values)
                text.check_effects(options.checked, values, RunConfig().values() | given)
                if _CONFIG in hints:
                    arguments[_CONFIG] = RunConfig.of(**given)
                for one in own:
                    needs = _annotated(one.annotation, Needs)
                    if needs and values[one.name] != one.default:
                        needs.check(one.name, values)
                function(**arguments)
            except KeyboardInterrupt as error:
                raise Stopped(f"stopped: {kept(arguments)}" if kept else "stopped") from error
            except KvdriveError as error:
                if error.args and "`" in str(error.args[0]):
                    error.args = (with_flags(str(error.args[0]), list(values)), *error.args[1:])
                raise

        call.__signature__ = Signature([*flags, *own])  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in [*flags, *own]}
        app.command(name, epilog=example(shown) if shown else None)(call)
        return function

    return add


def _flags(one: Parameter) -> list[Parameter]:
    """The flags of a command's parameter."""
    if _annotated(one.annotation, Group) is None:
        return [one]
    kind = get_args(one.annotation)[0]
    hints = get_type_hints(kind, include_extras=True)
    return [
        Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in fields(kind)
    ]


def _argument(annotation: Any, name: str, values: dict[str, Any]) -> Any:
    """What a command's parameter gets of the flags' values."""
    if _annotated(annotation, Group) is None:
        return values[name]
    kind = get_args(annotation)[0]
    return kind(**{each.name: values[each.name] for each in fields(kind)})


def _annotated(annotation: Any, kind: type) -> Any:
    """What of `kind` stands in an annotation; None: nothing."""
    return next((part for part in get_args(annotation) if isinstance(part, kind)), None)
