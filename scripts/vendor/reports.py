# SPDX-License-Identifier: Apache-2.0
"""Reads figures from the vendor's reports: csynth.xml of Vitis HLS, utilization and timing of Vivado."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from openhls.errors import OpenHlsError

Figures = dict[str, float | int | str]

# csynth.xml counts halves of block RAMs; tables elsewhere count whole ones.
_CSYNTH = {"LUT": "LUT", "FF": "FF", "DSP": "DSP", "DSP48E": "DSP", "URAM": "URAM"}
_UTILIZATION = {
    "CLB LUTs": "LUT",
    "CLB Registers": "FF",
    "Block RAM Tile": "BRAM",
    "URAM": "URAM",
    "DSPs": "DSP",
}
_ROW = re.compile(r"^\|\s*([A-Za-z][\w ]*?)\*?\s*\|\s*([\d.]+)\s*\|", re.MULTILINE)
_WORST_SLACK = re.compile(r"Design Timing Summary.*?WNS\(ns\).*?\n\s*-[- ]+\n\s*(-?[\d.]+)", re.DOTALL)


def read_csynth(path: Path, top: str) -> Figures:
    """Estimates of Vitis HLS: resources, clock period in ns. Raises OpenHlsError if the report is not of `top`."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise OpenHlsError(f"{path}: {error}") from None
    name = root.findtext("UserAssignments/TopModelName")
    resources = root.find("AreaEstimates/Resources")
    period = root.findtext("PerformanceEstimates/SummaryOfTimingAnalysis/EstimatedClockPeriod")
    if name != top or resources is None or period is None:
        raise OpenHlsError(f"{path}: no report of {top}")
    figures: Figures = {
        "tool": f"Vitis HLS {root.findtext('ReportVersion/Version')}",
        "stage": "C synthesis, estimate",
        "period_ns": float(period),
        "BRAM": int(resources.findtext("BRAM_18K", "0")) / 2,
    }
    return figures | {_CSYNTH[item.tag]: int(item.text or 0) for item in resources if item.tag in _CSYNTH}


def read_implementation(utilization: Path, timing: Path, period_ns: float) -> Figures:
    """After place and route: resources of the kernel and the clock period that it would reach, in ns."""
    rows = dict(_ROW.findall(utilization.read_text()))
    slack = _WORST_SLACK.search(timing.read_text())
    missing = [name for name in _UTILIZATION if name not in rows]
    if missing or slack is None:
        raise OpenHlsError(f"{utilization}, {timing}: no {', '.join(missing) or 'worst slack'} in them")
    figures: Figures = {
        "tool": _tool(utilization.read_text()),
        "stage": "place and route",
        "period_ns": round(period_ns - float(slack.group(1)), 3),
    }
    for name, key in _UTILIZATION.items():
        figures[key] = float(rows[name]) if key == "BRAM" else int(float(rows[name]))
    return figures


def read_link_utilization(path: Path, top: str) -> Figures:
    """After Vitis placed and routed the whole device: the kernel's share, from its table of kernels."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in path.read_text().splitlines() if "|" in line]
    names = next((line for line in lines if line and line[0] == "Name"), None)
    row = next((line for line in lines if line and line[0] == top), None)
    if names is None or row is None:
        raise OpenHlsError(f"{path}: no row of {top}")
    cells = dict(zip(names, (cell.split("[")[0].strip() for cell in row), strict=True))
    figures: Figures = {"tool": "Vitis", "stage": "place and route"}
    for name, key in (("LUT", "LUT"), ("REG", "FF"), ("DSP", "DSP"), ("URAM", "URAM")):
        figures[key] = int(cells[name])
    return figures | {"BRAM": float(cells["BRAM"])}


def _tool(text: str) -> str:
    found = re.search(r"Tool Version\s*:\s*Vivado v\.([\d.]+)", text)
    return f"Vivado {found.group(1)}" if found else "Vivado"
