"""What an option is to people: an explanation beside its field, and how its value is written as text.

Commands make their flags from it, so that an option is explained once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from typing import Any, Literal

from kvdrive.errors import InputError

AS_THE_FIELD: Any = object()
Given = Mapping[str, Any]  # values by the names of fields, and of a command's own options


@dataclass(frozen=True)
class Needs:
    """An option that has no effect unless `when` is true of the others. `what`: that, as the end of "goes with ..."."""

    what: str
    when: Callable[[Given], bool]

    def check(self, option: str, given: Given) -> None:
        """Raises InputError for an option that would be ignored."""
        if not self.when(given):
            raise InputError(f"`{option}` goes with {self.what}: without it the option has no effect, so leave it out")


@dataclass(frozen=True)
class About:
    """`help`: one sentence or two. They name other options as fields, in backticks.

    A flag has the field's name, or `flag`, and a letter `short` if it is common. `read` makes the value from what is
    typed, whose default is `typed` if that is not the field's. `choices`: all that can be typed. `path`: of a file that
    must be there, or of a folder that is made.
    """

    help: str
    flag: str = ""
    short: str = ""
    read: Callable[[Any], Any] | None = None
    typed: Any = AS_THE_FIELD
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    low: float | None = None
    high: float | None = None
    path: Literal["file", "folder"] | None = None
    needs: Needs | None = None

    def default(self, of: Field[Any]) -> Any:
        """What stands for the option where nothing is typed."""
        return of.default if self.typed is AS_THE_FIELD else self.typed


def option(default: Any, help: str, **how: Any) -> Any:
    """A field of a group of options, with its default; `how`: see About."""
    made = {"default_factory": default} if isinstance(default, type) else {"default": default}
    return field(**made, metadata={"about": About(help, **how)})


def about(one: Field[Any]) -> About | None:
    """What people can read of a field; None: it is no option of commands."""
    return one.metadata.get("about")
