# SPDX-License-Identifier: Apache-2.0
"""Initiation intervals that a kernel states, checked: the table `[loops]` of its kernel.toml, label = II.

The table is complete: a pipelined loop that it leaves out is an error like an interval that is not reached.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from openhls.emit.report import RegionReport
from openhls.errors import OpenHlsError

LABEL = re.compile(r"^[ \t]*(\w+):[ \t]*\n(?:[ \t]*#[^\n]*\n)*[ \t]*(?:for|while|do)\b", re.MULTILINE)


class Unexpected(OpenHlsError):
    """The schedule is not what the kernel states; one line per loop."""


@dataclass(frozen=True)
class Expectation:
    """Intervals by label, and the clock target in MHz (None: not stated)."""

    path: Path
    intervals: dict[str, int]
    clock_mhz: float | None = None


def read_expectation(path: Path) -> Expectation:
    """`[loops]` and `clock_mhz` of a kernel.toml. Raises OpenHlsError if there is no such table of numbers."""
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise OpenHlsError(f"{path}: {error}") from None
    intervals = data.get("loops")
    if not isinstance(intervals, dict) or not all(type(n) is int and n > 0 for n in intervals.values()):
        raise OpenHlsError(f"{path}: write a table [loops] with lines label = II")
    clock = data.get("kernel", {}).get("clock_mhz")
    return Expectation(path, intervals, None if clock is None else float(clock))


def check_intervals(regions: Iterable[RegionReport], sources: Iterable[str], expected: Expectation) -> None:
    """Raises Unexpected. A label of a loop that was unrolled or runs once is in the sources only, and fine."""
    problems = []
    seen = {label for source in sources for label in LABEL.findall(Path(source).read_text())}
    for region in regions:
        if region.interval is None or (not region.name and region.wish is None):
            continue
        seen.add(region.name)
        wanted = expected.intervals.get(region.name)
        where = f"{region.place}: loop {region.name or region.label} of {region.process}"
        if wanted is None:
            problems.append(f"{where} is pipelined, but {expected.path} has no II for it")
        elif region.interval > wanted:
            problems.append(f"{where} has II {region.interval}, not {wanted}: {region.limit or 'it asks for no less'}")
    unknown = [label for label in expected.intervals if label not in seen]
    problems += [f"{expected.path}: no loop is called {label}" for label in unknown]
    if problems:
        raise Unexpected("\n".join(problems))
