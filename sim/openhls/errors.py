# SPDX-License-Identifier: Apache-2.0
"""What openhls says when it refuses a program."""

from __future__ import annotations

from openhls.ir import UNKNOWN, Location


class OpenHlsError(Exception):
    """A program that cannot be compiled, or a tool that is missing. The text says what to do."""


class Unsupported(OpenHlsError):
    """C++ outside the subset: where it is, what it is, and what to write instead."""

    def __init__(self, location: Location, problem: str, advice: str) -> None:
        self.location = location
        self.problem = problem
        self.advice = advice
        place = "" if location == UNKNOWN else f"{location.chain()}: "
        super().__init__(f"{place}{problem}; {advice}")
