# SPDX-License-Identifier: Apache-2.0
"""What openhls says when it refuses a program."""

from __future__ import annotations

import re

from openhls.ir import UNKNOWN, Location
from openhls.names import cpp_name

_LINKER_NAME = re.compile(r"\b_?Z[NZLK]*\d\w*")


def readable(text: str) -> str:
    """The text with the C++ names of variables and functions in place of those that the linker has."""
    return _LINKER_NAME.sub(lambda found: cpp_name(found.group()), text)


class OpenHlsError(Exception):
    """A program that cannot be compiled, or a tool that is missing. The text says what to do."""


class Unsupported(OpenHlsError):
    """C++ outside the subset: where it is, what it is, and what to write instead."""

    def __init__(self, location: Location, problem: str, advice: str) -> None:
        self.location = location
        self.problem = problem = readable(problem)
        self.advice = advice = readable(advice)
        place = "" if location == UNKNOWN else f"{location.chain()}: "
        super().__init__(f"{place}{problem}; {advice}")
