"""Options as text: how commands and the arguments of harnesses name them, and the values of what is typed there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

from kvdrive.config.option import About, about
from kvdrive.config.run import GROUPS, RunConfig
from kvdrive.errors import InputError
from kvdrive.policies import entry_of

# Group, field and explanation of each option.
OPTIONS: dict[str, tuple[str, Field[Any], About]] = {
    name: (group, one, what) for group, names in GROUPS.items() for name, one in names.items() if (what := about(one))
}


def named(*names: str) -> list[str]:
    """The options of groups of `RunConfig`, and those that are named alone."""
    return [one for name in names for one in GROUPS.get(name, [name]) if one in OPTIONS]


def flag_of(name: str) -> str:
    """What an option is called where it is typed, with "_" between words."""
    if name == "sessions":
        return "session"
    return (name in OPTIONS and OPTIONS[name][2].flag) or name


def values(names: Iterable[str], typed: Mapping[str, Any]) -> dict[str, Any]:
    """The values of fields, from what is typed for each flag; one that is not typed has its default.

    Raises InputError for a policy other than exact that has no ratio.
    """
    given = {}
    for name in names:
        _, one, what = OPTIONS[name]
        value = typed.get(flag_of(name), what.default(one))
        given[name] = what.read(value) if what.read else value
    policy, entry, _ = entry_of(given.get("attention", "exact"))
    if policy != "exact" and not entry.takes and "ratio" in given and given["ratio"] is None:
        raise InputError(f"`attention={policy}` reads everything without a ratio: give one, as `ratio=1/8`")
    return given


def check_effects(names: Iterable[str], typed: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises InputError for an option that was typed and has no effect beside the others, whose values are `given`."""
    for name in names:
        _, one, what = OPTIONS[name]
        default = what.default(one)
        if what.needs and typed.get(flag_of(name), default) != default:
            what.needs.check(name, given)


def configured(names: list[str], typed: Mapping[str, Any]) -> RunConfig:
    """The options of a run, from words of `name=value`, some of which may be numbers already. Raises InputError."""
    text = {}
    for name in names:
        flag, (_, one, what) = flag_of(name), OPTIONS[name]
        if flag not in typed:
            continue
        value, default = typed[flag], what.default(one)
        if what.path:
            value = Path(value)
        elif isinstance(default, str | int | float):
            try:
                value = type(default)(value)
            except ValueError as error:
                raise InputError(f"`{name}={value}` is no number") from error
        text[flag] = value
    given = values(names, text)
    check_effects(names, text, RunConfig().values() | given)
    return RunConfig.of(**given)
