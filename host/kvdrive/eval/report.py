"""Results of an evaluation as JSON, as a table and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from kvdrive.eval.perplexity import Perplexity
from kvdrive.eval.retrieval import Accuracy
from kvdrive.eval.sweep import Point

_MARKERS = {"exact": "*", "sparf": "o", "sparq": "s", "h2o": "^", "local": "v"}


def write_json(path: Path, result: dict[str, Any]) -> None:
    """The whole result, readable by people too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def sweep_table(points: Sequence[Point]) -> Table:
    """One line per policy and ratio, bytes beside those of exact attention where that was measured."""
    tasks = list(points[0].accuracy)
    exact = next((point.bytes_read for point in points if point.policy == "exact"), None)
    table = Table(title="attention policies: bytes of K and V per decode step, and what is left of the model")
    for column in ("policy", "ratio", "KiB read", "of exact", "KiB needed", "perplexity", *tasks, "counted by"):
        table.add_column(column, justify="left" if column in ("policy", "counted by") else "right")
    for point in points:
        share = "-" if exact is None else f"{point.bytes_read / exact:.3f}"
        table.add_row(
            point.policy, point.ratio, f"{point.bytes_read / 1024:.1f}", share, f"{point.bytes_needed / 1024:.1f}",
            f"{point.perplexity:.2f}", *(f"{100 * point.accuracy[task]:.0f} %" for task in tasks), point.counted_by,
        )  # fmt: skip
    return table


def context_table(perplexities: Sequence[Perplexity], accuracies: Sequence[Accuracy]) -> Table:
    """Perplexity and accuracy by length of the context."""
    tasks = list(dict.fromkeys(row.task for row in accuracies))
    table = Table(title="by length of the context")
    for column in ("context", "perplexity", *(f"{task}, whole answers" for task in tasks)):
        table.add_column(column, justify="right")
    for length in sorted({row.context for row in perplexities} | {row.context for row in accuracies}):
        text = next((f"{row.perplexity:.2f}" for row in perplexities if row.context == length), "-")
        found = {row.task: f"{100 * row.exact:.0f} %" for row in accuracies if row.context == length}
        table.add_row(f"{length:,}", text, *(found.get(task, "-") for task in tasks))
    return table


def sweep_picture(path: Path, points: Sequence[Point], title: str) -> None:
    """Perplexity and accuracy of each task against bytes read (PNG). Raises InputError without matplotlib."""
    from matplotlib.figure import Figure  # an optional package

    tasks = list(points[0].accuracy)
    figure = Figure(figsize=(5 * (1 + len(tasks)), 4), layout="constrained")
    axes = figure.subplots(1, 1 + len(tasks), squeeze=False)[0]
    for name in dict.fromkeys(point.policy for point in points):
        mine = sorted((p for p in points if p.policy in (name, "exact")), key=lambda point: point.bytes_read)
        if name == "exact":
            mine = [point for point in points if point.policy == "exact"]
        read = [point.bytes_read / 1024 for point in mine]
        style = {"marker": _MARKERS.get(name, "."), "label": name, "linewidth": 1.2}
        axes[0].plot(read, [point.perplexity for point in mine], **style)
        for axis, task in zip(axes[1:], tasks, strict=True):
            axis.plot(read, [100 * point.accuracy[task] for point in mine], **style)
    for axis, label in zip(axes, ["perplexity", *(f"{task}: whole answers, %" for task in tasks)], strict=True):
        axis.set(xscale="log", xlabel="KiB of K and V read per step", ylabel=label)
        axis.grid(visible=True, which="both", alpha=0.3)
    axes[0].legend()
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
