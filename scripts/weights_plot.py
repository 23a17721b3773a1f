"""Draw docs/weights.png from what `make bench-weights` measured: where the time of a token goes, tokens a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench_dense import SPLIT, split

ROOT = Path(__file__).resolve().parent.parent


def picture(dense: list[dict[str, Any]], experts: list[dict[str, Any]], path: Path) -> None:
    """The rows of bench_dense and those of bench_weights with balanced routers, the first of them on top."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    steps, rates = figure.subplots(2, 1)
    names = [row["name"] for row in dense]
    left = [0.0] * len(dense)
    for title, parts in zip(SPLIT, zip(*map(split, dense), strict=True), strict=True):
        widths = [part or 0.0 for part in parts]
        steps.barh(names, widths, left=left, label=title.removesuffix(", ms"))
        left = [start + width for start, width in zip(left, widths, strict=True)]
    steps.legend()
    steps.set(title="Dense model, half of its neurons in memory: where the time of a token goes", xlabel="ms")
    balanced = [row for row in experts if row["routers"] == "balanced"]
    bars = rates.barh([row["name"].split(": ")[1] for row in balanced], [row["tokens_per_second"] for row in balanced])
    rates.bar_label(bars, fmt="%.2f", padding=3)
    rates.set(title="Mixture of experts, balanced routers", xlabel="tokens a second")
    for axes in (steps, rates):
        axes.invert_yaxis()
        axes.grid(alpha=0.3, axis="x")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Read the measurements in out/, draw."""
    dense, experts = (json.loads((ROOT / f"out/bench_{name}.json").read_text()) for name in ("dense", "weights"))
    picture(dense["rows"], experts["rows"], ROOT / "docs/weights.png")


if __name__ == "__main__":
    main()
