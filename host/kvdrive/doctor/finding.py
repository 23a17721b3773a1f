"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """`broken`: something that everybody needs does not work; `missing`: an option is not available here."""

    ok = "ok"
    missing = "missing"
    broken = "broken"


@dataclass(frozen=True)
class Finding:
    """`detail` says what was found, `gives` what it is good for, `remedy` what to do when it is not there."""

    group: str
    name: str
    state: State
    detail: str
    gives: str = ""
    remedy: str = ""
