"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """`broken`: a required part does not work. `missing`: an optional part is not available here."""

    ok = "ok"
    missing = "missing"
    broken = "broken"


@dataclass(frozen=True)
class Finding:
    """`detail`: what was found. `gives`: what the part is good for. `remedy`: what to do when the part is missing."""

    group: str
    name: str
    state: State
    detail: str
    gives: str = ""
    remedy: str = ""
