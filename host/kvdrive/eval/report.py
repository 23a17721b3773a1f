"""Results of an evaluation as JSON, as a table and as a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from rich.table import Table

from kvdrive import private
from kvdrive.eval.points import Point
from kvdrive.policies import POLICIES

_SHARE = "tokens of the answers, %"


def write_json(path: Path, result: dict[str, Any]) -> None:
    """The whole result, readable by people too."""
    private.make_folder(path.parent)
    private.write_text(path, json.dumps(result, indent=1) + "\n")


def points_of(result: dict[str, Any]) -> list[Point]:
    """The points of a result that `write_json` has written."""
    return [Point(**point) for point in result["points"]]


def rows(points: Sequence[Point]) -> list[list[str]]:
    """A header, then one row per context, policy, ratio and format; bytes also as a share of exact attention's.

    Columns that say the same in every row are left out: the format, and who counted the bytes.
    """
    tasks = list(points[0].accuracy)
    exact = {p.context: p.bytes_read for p in points if p.policy == "exact" and p.kv_format == "f16"}
    crossed = len({point.kv_format for point in points}) > 1
    counted = len({point.counted_by for point in points}) > 1
    found = [[
        "context", "policy", "ratio", *["format"] * crossed, "KiB read", "of exact", "KiB needed", "perplexity",
        "nats over exact", "KL to exact", "same choice", *tasks, *["counted by"] * counted,
    ]]  # fmt: skip
    for point in points:
        found.append([
            f"{point.context:,}", point.policy, point.ratio, *[point.kv_format] * crossed,
            f"{point.bytes_read / 1024:,.0f}",
            f"{point.bytes_read / exact[point.context]:.2f}" if point.context in exact else "-",
            f"{point.bytes_needed / 1024:,.0f}",
            "-" if point.perplexity is None else f"{point.perplexity:.2f}",
            _with_error(point.added_nats, point.added_error, "+.3f"),
            _with_error(point.kl, point.kl_error, ".4f"),
            _with_error(point.agreement, point.agreement_error, ".1%"),
            *(_share(point, task) for task in tasks),
            *[point.counted_by] * counted,
        ])  # fmt: skip
    return found


def _with_error(mean: float | None, error: float | None, form: str) -> str:
    if mean is None:
        return "-"
    return f"{mean:{form}}" + ("" if error is None else f" ± {error:{form.lstrip('+')}}")


def _share(point: Point, task: str) -> str:
    low, high = point.interval[task]
    return f"{point.accuracy[task]:.0%} ({low:.0%} to {high:.0%}) / {point.token_accuracy[task]:.0%}"


def sweep_table(points: Sequence[Point]) -> Table:
    """The rows for a terminal."""
    header, *lines = rows(points)
    table = Table(title="K and V per decode step, all layers and heads; tasks: whole answers (95 %) / their tokens")
    for column in header:
        table.add_column(column, justify="left" if column in ("policy", "format", "counted by") else "right")
    for line in lines:
        table.add_row(*line)
    return table


def sweep_picture(path: Path, points: Sequence[Point], title: str) -> None:
    """Perplexity, KL to exact and accuracy of each task against bytes read (PNG), for points of one context."""
    from matplotlib.figure import Figure  # an optional package
    from matplotlib.ticker import FuncFormatter

    drawn = _panels(points)
    across = min(len(drawn), 3)
    down = -(-len(drawn) // across)
    figure = Figure(figsize=(5 * across, 4 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for name, kind, kv_format in dict.fromkeys(map(_series, points)):
        wanted = {(name, kind, kv_format), ("exact", "", kv_format)}
        mine = sorted((p for p in points if _series(p) in wanted), key=attrgetter("bytes_read"))
        read = [point.bytes_read / 2**20 for point in mine]
        label = ", ".join([name, *[kind] * bool(kind), *[kv_format] * (kv_format != "f16")])
        style = {"marker": POLICIES[name].marker, "label": label, "linewidth": 1.2}
        for axis, value in zip(axes, drawn.values(), strict=False):
            axis.plot(read, [value(point) for point in mine], **style)
    for axis, label in zip(axes, drawn, strict=False):
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda mib, _: f"{mib:g}"))
        axis.set(xlabel="MiB of K and V read per step", ylabel=label)
        if label.endswith(_SHARE):
            axis.set_ylim(0, 105)
        axis.grid(visible=True, alpha=0.3)
    for axis in axes[len(drawn) :]:
        axis.remove()
    axes[len(drawn) - 1].legend()
    figure.suptitle(title)
    private.make_folder(path.parent)
    with private.whole_file(path) as file:
        figure.savefig(file, dpi=120)


def _series(point: Point) -> tuple[str, str, str]:
    """Points with the same value are joined by a line: policy, "limited" or its unit, format."""
    kind = "limited" if "unread" in point.ratio else point.ratio.partition(", ")[2]
    return point.policy, kind, point.kv_format


def _panels(points: Sequence[Point]) -> dict[str, Callable[[Point], float | None]]:
    """What the picture shows of a point, by the label of its axis."""
    found: dict[str, Callable[[Point], float | None]] = {}
    if all(point.perplexity is not None for point in points):
        found = {"perplexity": attrgetter("perplexity"), "KL to exact attention, nats": attrgetter("kl")}
    for task in points[0].accuracy:
        found[f"{task}: {_SHARE}"] = partial(_percent, task)
    return found


def _percent(task: str, point: Point) -> float:
    return 100 * point.token_accuracy[task]
