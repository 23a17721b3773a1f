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
_WIDTH, _HEIGHT, _TITLE = 4.6, 3.6, 0.3  # inches of a chart, and of the figure's title
_LEFT, _RIGHT, _BELOW, _ABOVE = 0.85, 0.12, 1.15, 0.3  # inches around a chart's axes
_DPI = 100
_COLUMNS = 3
_WRAP, _NAMES = 32, 44  # characters in a line of a label, and of the names of all groups of bars
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
    width, height = _WIDTH * columns, _HEIGHT * rows + _TITLE
    canvas = Figure(figsize=(width, height))
    axes = [
        canvas.add_axes(
            (
                (number % columns * _WIDTH + _LEFT) / width,
                ((rows - 1 - number // columns) * _HEIGHT + _BELOW) / height,
                (_WIDTH - _LEFT - _RIGHT) / width,
                (_HEIGHT - _BELOW - _ABOVE) / height,
            )
        )
        for number in range(len(charts))
    ]
    for place, chart in zip(axes, charts, strict=True):
        if chart["title"] == figure["title"]:
            chart = chart | {"title": ""}
        _chart(place, chart)
    canvas.suptitle(figure["title"], fontsize=11, y=1 - 0.08 / height)
    return canvas


def _chart(axes: Axes, chart: dict[str, Any]) -> None:
    places, series = chart["places"], chart["series"]
    numbers = chart["style"] == "lines"
    at = places if numbers else list(range(len(places)))
    width = 0.8 / (1 if chart["style"] == "stack" else len(series))
    bottom = [0.0] * len(places)
    where: dict[str, float] = {}  # offset of a series' bars
    below = 0.19 if chart["x"] else 0.13  # of the axes' height: where the legend begins
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
        names = [
            "\n".join(textwrap.wrap(str(place), max(8, _NAMES // len(places)), break_long_words=False))
            for place in places
        ]
        axes.set_xticks(at, names, fontsize=8)
        axes.set_xlim(-0.55, len(places) - 0.45)
        below += 0.05 * max(name.count("\n") for name in names)
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
    axes.grid(axis="y", alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(
        unique.values(),
        unique.keys(),
        fontsize=7,
        loc="upper center",
        bbox_to_anchor=(0.5, -below),
        ncols=2,
        frameon=False,
    )


def _scale(axes: Axes, chart: dict[str, Any]) -> None:
    if "x" in chart["log"]:
        axes.set_xscale("log", base=2)
        axes.set_xticks(chart["places"], [_short(place) for place in chart["places"]])
        axes.minorticks_off()


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
            label = "\n".join(textwrap.wrap(f"paper: {point['says']}", _WRAP))
            axes.axhline(point["value"], color="black", linestyle=next(dashes), linewidth=1, label=label)
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
