"""From flags to the fields of a `RunConfig`, and back: the library speaks of fields, the command line of flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

if TYPE_CHECKING:
    from kvdrive.config.run import RunConfig

_FIELD = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")  # as the library's sentences name fields, some with a value


@dataclass(frozen=True)
class Sets:
    """Stands in the annotation of an option whose field has another name or another type: `read` makes its value."""

    field: str = ""
    read: Callable[[Any], Any] = lambda value: value


class Group:
    """Base of the groups of options that set fields: those of the same name, or as their annotations say."""

    def fields(self) -> dict[str, Any]:
        """The values of fields. Raises InputError for what is no value."""
        return {sets.field: sets.read(getattr(self, name)) for name, sets in _sets(type(self)).items()}


def configured(*groups: Group, **more: Any) -> RunConfig:
    """The options of a run; `more`: fields by their names. Raises InputError."""
    from kvdrive.config.run import RunConfig

    given: dict[str, Any] = {}
    for group in groups:
        given |= group.fields()
    return RunConfig.of(**given, **more)


def with_flags(sentence: str, own: Collection[str] = ()) -> str:
    """A sentence of the library with flags in place of fields; `own`: options of the command that are no fields."""
    from kvdrive.config.run import FIELDS

    flags = {sets.field: name for group in Group.__subclasses__() for name, sets in _sets(group).items()}
    flags["sessions"] = "session"

    def flag(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in FIELDS and name not in own:
            return found[0]
        return " ".join([f"--{flags.get(name, name).replace('_', '-')}", *([value] if value else [])])

    return _FIELD.sub(flag, sentence)


def _sets(group: type) -> dict[str, Sets]:
    """What each option of a group sets."""
    hints = get_type_hints(group, include_extras=True)
    found = {}
    for one in fields(group):
        given = next((part for part in get_args(hints[one.name]) if isinstance(part, Sets)), Sets())
        found[one.name] = Sets(given.field or one.name, given.read)
    return found
