"""The folder of a report: report.json, two plots, a timeline."""

from __future__ import annotations

import json
from pathlib import Path

from kvdrive.report import plots, trace
from kvdrive.report.record import Recorder
from kvdrive.report.summary import Report


def write(folder: Path, report: Report, record: Recorder) -> list[Path]:
    """Write the files into `folder`, which is made; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("report.json", "bytes.png", "times.png", "trace.json")
    document, traffic, times, timeline = (folder / name for name in names)
    document.write_text(json.dumps(report, indent=2) + "\n")
    context, decode = max(report["prompts"]) + 1, report["steps"][1:]
    plots.traffic(traffic, decode, context)
    plots.times(times, decode, context)
    trace.write(timeline, record)
    return [document, traffic, times, timeline]
