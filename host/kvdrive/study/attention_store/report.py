"""The figures of replays as JSON and as a picture."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvdrive import private
from kvdrive.study.attention_store.hardware import Machine, Model
from kvdrive.study.attention_store.simulation import Result
from kvdrive.study.attention_store.traces import Trace


def describe(trace: Trace, model: Model, machine: Machine, results: dict[str, Result]) -> dict[str, Any]:
    """Everything that was put in and came out. All times and costs are modelled."""
    return {
        "trace": {"name": trace.name, "block": trace.block, "requests": sum(1 for _ in trace)},
        "model": asdict(model),
        "machine": asdict(machine),
        "results": {name: result.figures(machine) for name, result in results.items()},
    }


def write(folder: Path, report: dict[str, Any]) -> list[Path]:
    """replay.json and replay.png in `folder`."""
    from matplotlib.figure import Figure  # the import takes a second

    private.make_folder(folder)
    private.write_text(folder / "replay.json", json.dumps(report, indent=1) + "\n")
    names = list(report["results"])
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    panels = (
        ("hits among requests with history", "hit_rate"),
        ("time to the first token, s (modelled)", "mean_ttft_seconds"),
        ("prefill and storage, USD (modelled)", "prefill_usd"),
    )
    for axes, (title, key) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        axes.bar(names, [report["results"][name][key] for name in names], color="#4477aa")
        if key == "prefill_usd":
            bottoms = [report["results"][name][key] for name in names]
            axes.bar(names, [report["results"][name]["storage_usd"] for name in names], bottom=bottoms, color="#ccbb44")
        axes.set_title(title, fontsize=9)
        axes.tick_params(axis="x", labelrotation=30, labelsize=8)
    figure.suptitle(report["trace"]["name"], fontsize=10)
    with private.whole_file(folder / "replay.png") as file:
        figure.savefig(file, dpi=120)
    return [folder / "replay.json", folder / "replay.png"]
