"""Options that have an effect only beside others. Where they have none they are refused, before any work begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvdrive.errors import InputError

Given = Mapping[str, Any]  # the values of a command's options, by parameter


@dataclass(frozen=True)
class Needs:
    """Stands in the annotation of an option that has no effect unless `when` is true of the command's other options.

    `what`: that condition, as the end of "goes with ...".
    """

    what: str
    when: Callable[[Given], bool]

    def check(self, flag: str, given: Given) -> None:
        """Raises InputError for an option that would be ignored."""
        if not self.when(given):
            raise InputError(f"{flag} goes with {self.what}: without it the option has no effect, so leave it out")


def sparse(given: Given) -> bool:
    """True if a policy reads groups of tokens by an index."""
    if "attention" in given:
        return given["attention"].partition(":")[0] in ("groups", "auto")
    if "policies" in given:
        return bool(
            {"groups", "auto", "all"} & {part.strip().partition(":")[0] for part in given["policies"].split(",")}
        )
    return "kl" in given  # `calibrate` measures policy groups


def elsewhere(given: Given) -> bool:
    """True if the target is not in this process."""
    from kvdrive.choices import TARGETS

    return given.get("target", "emulator") not in TARGETS
