"""Results of an evaluation as JSON, as a table and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.table import Table

from kvdrive.eval.sweep import Point
from kvdrive.policies import POLICIES


def write_json(path: Path, result: dict[str, Any]) -> None:
    """The whole result, readable by people too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def points_of(result: dict[str, Any]) -> list[Point]:
    """The points of a result that `write_json` has written."""
    return [Point(**point) for point in result["points"]]


def sweep_table(points: Sequence[Point]) -> Table:
    """One line per context, policy and ratio; bytes also as a share of what exact attention read there."""
    tasks = list(points[0].accuracy)
    exact = {p.context: p.bytes_read for p in points if p.policy == "exact" and p.kv_format == "f16"}
    table = Table(title="K and V per decode step, all layers and heads; tasks: whole answers / their tokens")
    for column in (
        "context",
        "policy",
        "ratio",
        "format",
        "KiB read",
        "of exact",
        "KiB needed",
        "perplexity",
        *tasks,
        "counted by",
    ):
        table.add_column(column, justify="left" if column in ("policy", "format", "counted by") else "right")
    for point in points:
        share = f"{point.bytes_read / exact[point.context]:.3f}" if point.context in exact else "-"
        table.add_row(
            f"{point.context:,}", point.policy, point.ratio, point.kv_format, f"{point.bytes_read / 1024:.1f}", share,
            f"{point.bytes_needed / 1024:.1f}", "-" if point.perplexity is None else f"{point.perplexity:.2f}",
            *(f"{100 * point.accuracy[task]:.0f} / {100 * point.token_accuracy[task]:.0f} %" for task in tasks),
            point.counted_by,
        )  # fmt: skip
    return table


def sweep_picture(path: Path, points: Sequence[Point], title: str) -> None:
    """Perplexity and accuracy of each task against bytes read (PNG), for points of one context."""
    from matplotlib.figure import Figure  # an optional package
    from matplotlib.ticker import FuncFormatter

    tasks = list(points[0].accuracy)
    figure = Figure(figsize=(5 * (1 + len(tasks)), 4), layout="constrained")
    axes = figure.subplots(1, 1 + len(tasks), squeeze=False)[0]
    for name, kv_format in dict.fromkeys((point.policy, point.kv_format) for point in points):
        wanted = {name, "exact"} if name != "exact" else {name}
        chosen = (p for p in points if p.policy in wanted and p.kv_format == kv_format)
        mine = sorted(chosen, key=lambda point: Fraction(point.ratio))
        read = [point.bytes_read / 2**20 for point in mine]
        label = name if kv_format == "f16" else f"{name}, {kv_format}"
        style = {"marker": POLICIES[name].marker, "label": label, "linewidth": 1.2}
        if all(point.perplexity is not None for point in mine):
            axes[0].plot(read, [point.perplexity for point in mine], **style)
        for axis, task in zip(axes[1:], tasks, strict=True):
            axis.plot(read, [100 * point.accuracy[task] for point in mine], **style)
    for axis, label in zip(axes, ["perplexity", *(f"{task}: whole answers, %" for task in tasks)], strict=True):
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda mib, _: f"{mib:g}"))
        axis.set(xlabel="MiB of K and V read per step", ylabel=label)
        axis.grid(visible=True, alpha=0.3)
    axes[-1].legend()
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
