"""Draws docs/results/weights.png: where the time of a token goes on a dense model, and tokens a second of experts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench import results
from kvdrive.tree import ROOT

Parts = list[float | None]


def draw(steps: list[tuple[str, Parts]], titles: Sequence[str]) -> None:
    """The picture with the experts' last results; without any it stays as it is."""
    experts = results.latest("weights/experts").block.figures
    if experts is not None:
        picture(steps, titles, experts["rows"], ROOT / "docs/results/weights.png")


def picture(steps: list[tuple[str, Parts]], titles: Sequence[str], experts: list[dict[str, Any]], path: Path) -> None:
    """The dense model's steps with the parts of their time, and the experts' rows with balanced routers."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    above, below = figure.subplots(2, 1)
    left = [0.0] * len(steps)
    for number, title in enumerate(titles):
        widths = [parts[number] or 0.0 for _, parts in steps]
        above.barh([name for name, _ in steps], widths, left=left, label=title.removesuffix(", ms"))
        left = [start + width for start, width in zip(left, widths, strict=True)]
    above.legend()
    above.set(title="Dense model, half of its neurons in memory: where the time of a token goes", xlabel="ms")
    balanced = [row for row in experts if row["routers"] == "balanced"]
    bars = below.barh([row["name"].split(": ")[1] for row in balanced], [row["tokens_per_second"] for row in balanced])
    below.bar_label(bars, fmt="%.2f", padding=3)
    below.set(title="Mixture of experts, balanced routers", xlabel="tokens a second")
    for axes in (above, below):
        axes.invert_yaxis()
        axes.grid(alpha=0.3, axis="x")
    figure.savefig(path, dpi=110)
