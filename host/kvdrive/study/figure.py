"""A figure: charts of our values with the points that the paper states beside them, and what we say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

DIGITS = 4  # significant digits of values in JSON: the same on every machine

Place = float | str  # where a value lies on the x axis: a number, or the name of a group of bars


class Style(StrEnum):
    """How the series of a chart are drawn."""

    lines = "lines"
    bars = "bars"
    stack = "stack"


class Origin(StrEnum):
    """Where the values of a chart are from. The picture says it beside the y axis."""

    modelled = "modelled"
    simulated = "simulated RTL"
    arithmetic = "arithmetic of the paper's numbers"


@dataclass(frozen=True)
class Series:
    """Our values: one for each place of the chart; None where the system cannot run."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Published:
    """A value that the paper states. `x` None: it holds for the chart, and is drawn as a line across it.

    `series`: the name of our series that it belongs to, if any.
    """

    value: float
    claim: str
    says: str
    x: Place | None = None
    series: str = ""


@dataclass(frozen=True)
class Chart:
    """`places`: of the values on the x axis. `log`: axes with a logarithmic scale, "x", "y" or "xy". `origin`: of our
    values; what the papers state is drawn as stars and lines."""

    title: str
    x: str
    y: str
    places: Sequence[Place]
    series: Sequence[Series]
    published: Sequence[Published] = ()
    style: Style = Style.lines
    log: str = ""
    origin: Origin = Origin.modelled


@dataclass(frozen=True)
class Figure:
    """`key` names the files. `number`: the paper's own. `compared`: one paragraph on how ours compares with it."""

    key: str
    number: str
    title: str
    charts: Sequence[Chart]
    compared: str
    assumes: str = ""


@dataclass(frozen=True)
class Paper:
    """The figures of a paper. `left_out`: figures that are not drawn, and why."""

    key: str
    name: str
    figures: Sequence[Figure]
    left_out: Sequence[tuple[str, str]] = field(default=())


def record(paper: Paper) -> dict[str, Any]:
    """For JSON, with rounded values."""
    figures = [rounded(asdict(figure)) for figure in paper.figures]
    return {"paper": paper.name, "figures": figures, "left_out": rounded(paper.left_out)}


def rounded(value: Any) -> Any:
    """The same with all numbers to DIGITS significant digits, and tuples as lists."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    return value
