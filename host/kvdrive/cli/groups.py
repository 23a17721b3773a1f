"""Groups of options that several commands share. Each group is a dataclass; a command receives it as one value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_args, get_type_hints

from typer import Typer
from typer.models import OptionInfo

from kvdrive.cli.fields import with_flags
from kvdrive.cli.needs import Needs
from kvdrive.errors import KvdriveError, Stopped

COMMON = ("model", "target", "drive", "attention", "ratio", "memory")  # of groups, shown beside a command's own options


def command(
    app: Typer, name: str | None = None, kept: Callable[[dict[str, Any]], str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `app.command(name)`, but a parameter whose type is a dataclass becomes one option for each of its fields.

    Each field is annotated as a typer parameter and has a default; --help shows it in the group's `panel`, unless it is
    COMMON. `kept`: from the arguments of a command that ^C has stopped, what the user finds afterwards.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

        flat = list(_flat(function, hints))
        given_names = [one.name for one in flat]

        @wraps(function)
        def call(**values: Any) -> None:
            require_effects(flat, values)
            given = {group: {field.name: values.pop(field.name) for field in fields(groups[group])} for group in groups}
            arguments = values | {group: groups[group](**options) for group, options in given.items()}
            try:
                function(**arguments)
            except KeyboardInterrupt as error:
                raise Stopped(f"stopped: {kept(arguments)}" if kept else "stopped") from error
            except KvdriveError as error:
                if error.args and "`" in str(error.args[0]):
                    error.args = (with_flags(str(error.args[0]), given_names), *error.args[1:])
                raise

        call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
        call.__annotations__ = {name: one.annotation for name, one in call.__signature__.parameters.items()}  # type: ignore[attr-defined]
        app.command(name)(call)
        return function

    return add


def require_effects(options: list[inspect.Parameter], given: dict[str, Any]) -> None:
    """Raises InputError for an option that was given and has no effect beside the others."""
    for option in options:
        needs = next((one for one in get_args(option.annotation) if isinstance(one, Needs)), None)
        if needs is not None and given[option.name] != option.default:
            needs.check(f"--{option.name.replace('_', '-')}", given)


def _flat(function: Callable[..., None], hints: dict[str, Any]) -> list[inspect.Parameter]:
    """The parameters of a command, each group replaced by its fields."""
    flat: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if not is_dataclass(hints[name]):
            flat.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(hints[name], include_extras=True)
        for field in fields(hints[name]):
            _option(types[field.name]).rich_help_panel = None if field.name in COMMON else hints[name].panel
        flat += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name]
            )
            for field in fields(hints[name])
        ]
    return flat


def _option(annotation: Any) -> OptionInfo:
    """What typer knows of an option of a group."""
    return next(part for part in get_args(annotation) if isinstance(part, OptionInfo))
