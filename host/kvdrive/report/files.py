"""The folder of a report: report.json, two plots, a timeline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kvdrive import private
from kvdrive.report import plots, trace
from kvdrive.report.record import Recorder
from kvdrive.report.summary import Report

_MARK = "array of kvdrive.report "


def write(folder: Path, report: Report, record: Recorder) -> list[Path]:
    """Write the files into `folder`, which is made; returns their paths."""
    private.make_folder(folder)
    names = ("report.json", "bytes.png", "times.png", "trace.json")
    document, traffic, times, timeline = (folder / name for name in names)
    private.write_text(document, to_json(report) + "\n")
    context, decode = max(report["prompts"]) + 1, report["steps"][1:]
    plots.traffic(traffic, decode, context)
    plots.times(times, decode, context)
    trace.write(timeline, record)
    return [document, traffic, times, timeline]


def to_json(document: Any) -> str:
    """Indented JSON whose arrays of plain values are on one line each."""
    values: list[str] = []

    def keep(value: Any) -> Any:
        """Replace arrays of plain values by numbered marks. The indented text gets the arrays back."""
        if isinstance(value, dict):
            return {key: keep(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            if any(isinstance(item, dict | list | tuple) for item in value):
                return [keep(item) for item in value]
            values.append(json.dumps(value))
            return f"{_MARK}{len(values) - 1}"
        return value

    text = json.dumps(keep(document), indent=2)
    return re.sub(f'"{_MARK}([0-9]+)"', lambda found: values[int(found[1])], text)
