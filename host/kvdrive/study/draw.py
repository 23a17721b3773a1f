"""Pictures of figures. Each carries a digest of its numbers, so that a stale one is noticed without drawing."""

from __future__ import annotations

import hashlib
import itertools
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvdrive.report.plots import check_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222222")  # Paul Tol's bright
MARKS = "os^Dv<>P"
_WIDTH, _AXES = 4.8, 2.15  # inches: width of a chart, height of its axes
_LEFT, _RIGHT, _ABOVE = 1.1, 0.12, 0.3  # around a chart's axes
_TITLE = 0.22  # a line of the figure's title
_LINE, _ENTRY = 0.125, 0.165  # a line of a tick's name or an axis' label, and of the legend
_DPI = 100
_COLUMNS = 3
_WRAP, _NAMES, _WORDS = 32, 44, 11  # characters in a line of a label, in the names of all groups, in an inch of title
_MANY = 6  # groups of bars: the names of more are smaller
_DIGEST = "Description"


def digest(figure: dict[str, Any]) -> str:
    """Of the numbers and words of a figure's record, and of the code that draws them."""
    return hashlib.sha256(json.dumps(figure, sort_keys=True).encode() + Path(__file__).read_bytes()).hexdigest()[:16]


def stored_digest(path: Path) -> str:
    """The digest that a picture carries; empty if it carries none."""
    data, mark = path.read_bytes(), f"{_DIGEST}\0".encode()
    at = data.find(mark)
    return data[at + len(mark) : at + len(mark) + 16].decode("latin-1") if at >= 0 else ""


def draw(figure: dict[str, Any], path: Path) -> None:
    """Draw a figure's record into a PNG file. Raises InputError without matplotlib."""
    metadata = {_DIGEST: digest(figure), "Software": None}
    drawn(figure).savefig(path, dpi=_DPI, metadata=metadata, pil_kwargs={"optimize": True})


def drawn(figure: dict[str, Any]) -> Figure:
    """A figure's record as matplotlib draws it. Raises InputError without matplotlib."""
    check_installed()
    from matplotlib.figure import Figure  # the import takes a second

    charts = figure["charts"]
    columns = min(_COLUMNS, len(charts))
    rows = -(-len(charts) // columns)
    below = max(_legend_at(chart) + _LINE + _ENTRY * _legend_lines(chart) for chart in charts)
    title = textwrap.wrap(figure["title"], int(_WORDS * _WIDTH * columns))
    row = _ABOVE + _AXES + below
    width, height = _WIDTH * columns, row * rows + _TITLE * len(title) + 0.1
    canvas = Figure(figsize=(width, height))
    axes = [
        canvas.add_axes(
            (
                (number % columns * _WIDTH + _LEFT) / width,
                ((rows - 1 - number // columns) * row + below) / height,
                (_WIDTH - _LEFT - _RIGHT) / width,
                _AXES / height,
            )
        )
        for number in range(len(charts))
    ]
    for place, chart in zip(axes, charts, strict=True):
        if chart["title"] == figure["title"]:
            chart = chart | {"title": ""}
        _chart(place, chart)
    canvas.suptitle("\n".join(title), fontsize=11, y=1 - 0.08 / height)
    return canvas


def _tick_names(chart: dict[str, Any]) -> list[str]:
    """Of the groups of bars, in lines; empty on an axis of numbers."""
    places = chart["places"]
    if chart["style"] == "lines":
        return []
    each = max(5, _NAMES // len(places))
    return ["\n".join(textwrap.wrap(str(place), each, break_long_words=False)) for place in places]


def _legend_at(chart: dict[str, Any]) -> float:
    """Inches from the axes to the legend: what names of ticks and the label take."""
    lines = max((name.count("\n") + 1 for name in _tick_names(chart)), default=1)
    return 0.1 + _LINE * (lines + bool(chart["x"])) + 0.06


def _legend_lines(chart: dict[str, Any]) -> int:
    """Lines of text of the longer of the legend's two columns."""
    says = [_said(point) for point in chart["published"] if point["x"] is None]
    stars = ["paper"] if any(point["x"] is not None for point in chart["published"]) else []
    entries: list[str] = [*says, *(one["name"] for one in chart["series"]), *stars]
    half = -(-len(entries) // 2)
    columns = (entries[:half], entries[half:])
    return max(sum(len(entry.splitlines()) for entry in column) for column in columns)


def _said(point: dict[str, Any]) -> str:
    return "\n".join(textwrap.wrap(f"paper: {point['says']}", _WRAP))


def _chart(axes: Axes, chart: dict[str, Any]) -> None:
    places, series = chart["places"], chart["series"]
    numbers = chart["style"] == "lines"
    at = places if numbers else list(range(len(places)))
    width = 0.8 / (1 if chart["style"] == "stack" else len(series))
    bottom = [0.0] * len(places)
    where: dict[str, float] = {}  # offset of a series' bars
    for number, one in enumerate(series):
        colour, values = COLOURS[number % len(COLOURS)], [v if v is not None else float("nan") for v in one["values"]]
        if numbers:
            axes.plot(at, values, color=colour, marker=MARKS[number % len(MARKS)], markersize=4, label=one["name"])
        elif chart["style"] == "stack":
            axes.bar(at, values, width, bottom=bottom, color=colour, label=one["name"])
            bottom = [below + (one["values"][n] or 0.0) for n, below in enumerate(bottom)]
        else:
            where[one["name"]] = (number - (len(series) - 1) / 2) * width
            axes.bar([x + where[one["name"]] for x in at], values, width, color=colour, label=one["name"])
    _published(axes, chart, where)
    if not numbers:
        axes.set_xticks(at, _tick_names(chart))
        axes.set_xlim(-0.55, len(places) - 0.45)
    else:
        _scale(axes, chart)
    if "y" in chart["log"]:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter("")
        low, high = axes.get_ylim()
        axes.set_yticks(_log_ticks(low, high))
    elif axes.get_ylim()[0] >= 0:
        axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.08)
    axes.set_title("\n".join(textwrap.wrap(chart["title"], 56)), fontsize=9)
    axes.set_xlabel(chart["x"], fontsize=8)
    axes.set_ylabel("\n".join([*textwrap.wrap(chart["y"], _WRAP), f"({chart['origin']})"]), fontsize=8)
    axes.tick_params(labelsize=8)
    axes.tick_params(axis="x", labelsize=8 if len(places) <= _MANY else 7)
    axes.grid(axis="y", alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(
        unique.values(),
        unique.keys(),
        fontsize=7,
        loc="upper center",
        bbox_to_anchor=(0.5, -_legend_at(chart) / _AXES),
        borderaxespad=0,
        ncols=2,
        frameon=False,
    )


def _scale(axes: Axes, chart: dict[str, Any]) -> None:
    if "x" in chart["log"]:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    axes.set_xticks(chart["places"], [_short(place) for place in chart["places"]])


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between the ends of a logarithmic axis: the coarsest steps that give at least three."""
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [n * 10.0**e for e in range(-6, 7) for n in steps if low <= n * 10.0**e <= high]
        if len(ticks) > 2:
            break
    return ticks


def _published(axes: Axes, chart: dict[str, Any], where: dict[str, float]) -> None:
    dashes = itertools.cycle(("--", ":", "-."))
    for point in chart["published"]:
        if point["x"] is None:
            axes.axhline(point["value"], color="black", linestyle=next(dashes), linewidth=1, label=_said(point))
            continue
        x = point["x"]
        if chart["style"] != "lines":
            x = chart["places"].index(x) + where.get(point["series"], 0.0)
        axes.plot([x], [point["value"]], "*", color="black", markersize=10, zorder=5, linestyle="none", label="paper")


def _short(number: float) -> str:
    """16384 as 16K."""
    if number >= 1 << 20 and number % (1 << 20) == 0:
        return f"{number / (1 << 20):g}M"
    return f"{number / 1024:g}K" if number >= 1024 and number % 1024 == 0 else f"{number:g}"
