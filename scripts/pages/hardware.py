# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/results/hardware.md, from the manifests in bitstreams/ and scripts/hardware_targets.toml.

A figure that nobody has measured is "-"; a target that is not reached says by how much.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import bench.table
from kvdrive.tree import ROOT
from pages.blocks import filled

PAGE = ROOT / "docs/results/hardware.md"
MANIFESTS = ROOT / "bitstreams"
TARGETS = ROOT / "scripts/hardware_targets.toml"
RESOURCES = ("LUT", "DSP", "BRAM", "URAM", "FF")
ROUTED = ("LUT", "FF", "DSP", "BRAM")
MHZ = 300  # clock for which GB/s are computed
LARGEST = 3  # the number of modules shown for a top
UNCERTAINTY = 0.25  # share of the clock period kept for skew and long nets (openhls's delay table)

Table = dict[str, Any]
Manifests = dict[str, Table]


def rows_text(head: list[str], rows: list[list[str]], numbers: int) -> str:
    """A table whose columns from `numbers` on are aligned to the right."""
    return bench.table.Table(head, rows, align="l" * numbers + "r" * (len(head) - numbers)).text()


def _found(manifests: Manifests, target: Table, job: str) -> Table | None:
    """The measurement of a target's kernel on `job`."""
    jobs = manifests.get(target["top"], {}).get("measured", [])
    return next((one for one in jobs if (one["job"], one["memory"]) == (job, target["memory"])), None)


def verdict(value: float, limit: float, at_most: bool) -> str:
    """`met`, or the distance from the target."""
    if value <= limit if at_most else value >= limit:
        return "met"
    if not limit:
        return f"missed by {value:g}"
    missed = abs(value / limit - 1) * 100
    return f"missed by {missed:.0f} %" if missed >= 1 else f"missed by {missed:.1g} %"


def rate_row(manifests: Manifests, target: Table) -> list[str]:
    one = _found(manifests, target, target["job"])
    limit = f"<= {target['cycles']:,} cycles" if "cycles" in target else ""
    limit = f">= {target['gb_per_s']} GB/s" if "gb_per_s" in target else limit
    limit = f">= {target['faster']:g}x" if "faster" in target else limit
    start = [target["name"], target["job"], target["memory"], limit]
    if one is None:
        return [*start, "-", "-", "not measured"]
    formula = f"{one['formula']:,}" if "formula" in one else "-"
    if "cycles" in target:
        return [*start, f"{one['cycles']:,}", formula, verdict(one["cycles"], target["cycles"], True)]
    if "gb_per_s" in target:
        speed = one["amount"] / one["cycles"] * MHZ / 1000
        return [*start, f"{one['cycles']:,}, {speed:.1f} GB/s", formula, verdict(speed, target["gb_per_s"], False)]
    other = _found(manifests, target, target["than"])
    if other is None:
        return [*start, f"{one['cycles']:,}", formula, "not measured"]
    ratio = other["cycles"] / one["cycles"]
    return [*start, f"{one['cycles']:,}, {ratio:.2f}x", formula, verdict(ratio, target["faster"], False)]


def _resources(manifest: Table, tool: str, module: str) -> Table:
    """LUT, DSP ... as `tool` counts them. Only Yosys counts parts of a design."""
    if tool == "yosys":
        yosys = manifest.get("yosys", {})
        if not module:
            return yosys.get("total", {})
        return next((counts for name, counts in yosys.get("modules", {}).items() if name.startswith(module)), {})
    return {} if module else next(iter(manifest.get("vendor", {}).values()), {})


def area_rows(manifests: Manifests, target: Table) -> list[list[str]]:
    """One row per resource that has a target."""
    if "times" in target:
        return ratio_rows(manifests, target)
    manifest, module = manifests.get(target["top"], {}), target.get("module", "")
    rows = []
    for resource in RESOURCES:
        if resource not in target:
            continue
        yosys = _resources(manifest, "yosys", module).get(resource)
        vendor = _resources(manifest, "vendor", module).get(resource)
        judged = yosys if vendor is None else vendor
        state = "not measured" if judged is None else verdict(judged, target[resource], True)
        estimate = manifest.get("estimate", {}).get(resource) if not module else None
        cells = [_number(estimate), _number(yosys), _number(vendor)]
        rows.append([target["name"], resource, f"<= {target[resource]:,}", *cells, state])
    return rows


def ratio_rows(manifests: Manifests, target: Table) -> list[list[str]]:
    """Ratios of LUTs between two tops, or between one and the difference of two: `over` less `without`."""
    names = [target[name] for name in ("top", "over", "without") if name in target]
    luts = [_resources(manifests.get(name, {}), "yosys", "").get("LUT") for name in names]
    whole, part = luts[0], None if None in luts else luts[1] - sum(luts[2:])
    start, limit = [target["name"], "LUT"], target["times"]
    if whole is None or part is None:
        return [[*start, f"<= {limit:g}x", "-", "-", "-", "not measured"]]
    ratio = whole / part
    return [[*start, f"<= {limit:g}x", "-", f"{ratio:.2f}x", "-", verdict(ratio, limit, True)]]


def _number(value: float | int | None) -> str:
    return "-" if value is None else f"{value:,g}" if isinstance(value, float) else f"{value:,}"


def kernel_row(name: str, manifest: Table) -> list[str]:
    """All figures of the area and the clock of one top."""
    total, vendor = manifest.get("yosys", {}).get("total", {}), _resources(manifest, "vendor", "")
    budget = 1000 / manifest["clock_mhz"] * (1 - UNCERTAINTY)
    clock = [f"{manifest['clock_mhz']:g} MHz", f"{budget:.2f}", f"{manifest['slowest_ns']:.2f}"]
    return [name, *(_number(total.get(r)) for r in RESOURCES), *clock, _number(vendor.get("period_ns"))]


def length_rows(name: str, manifest: Table) -> list[list[str]]:
    """Cycles of a top's exact jobs by tokens, per head dimension and memory; the line through shortest and longest."""
    found: dict[tuple[str, str], dict[int, int]] = {}
    for one in manifest.get("measured", []):
        shape = re.search(r"(\d+) tokens, d = (\d+)", one["job"])
        if shape and one["job"].startswith("exact"):
            found.setdefault((shape[2], one["memory"]), {})[int(shape[1])] = one["cycles"]
    rows = []
    for (width, memory), cycles in found.items():
        first, last = min(cycles), max(cycles)
        if first == last:
            continue
        slope = (cycles[last] - cycles[first]) / (last - first)
        each = "; ".join(f"{tokens:,}: {count:,}" for tokens, count in sorted(cycles.items()))
        rows.append([name, width, memory, each, f"{slope:.2f}", f"{cycles[first] - slope * first:,.0f}"])
    return rows


def gain_rows(manifests: Manifests, gain: Table) -> list[list[str]]:
    """The same job on `than` and on `tops`: cycles, DSPs, and DSPs times cycles as a share of those of `than`."""
    rows: list[list[str]] = []
    cycles_before, work_before = 0, 0
    for top in (gain["than"], *gain["tops"]):
        one = _found(manifests, gain | {"top": top}, gain["job"] if top == gain["than"] else gain["job_over_codes"])
        cycles: int = one["cycles"] if one else 0
        dsps: int = _resources(manifests.get(top, {}), "yosys", "").get("DSP", 0)
        if top == gain["than"]:
            cycles_before, work_before = cycles, cycles * dsps
        faster = f"{cycles_before / cycles:.2f}x" if cycles else "-"
        work = f"{dsps * cycles / work_before:.2f}x" if dsps * cycles * work_before else "-"
        rows.append([top, _number(cycles or None), faster, _number(dsps or None), work])
    return rows


def module_rows(name: str, manifest: Table) -> list[list[str]]:
    """The modules of a top that take most LUTs, all their copies together."""
    yosys = manifest.get("yosys", {})
    modules = sorted(yosys.get("modules", {}).items(), key=lambda item: -item[1]["LUT"] * item[1]["uses"])
    rows = []
    for module, counts in modules[:LARGEST]:
        uses = counts["uses"]
        share = counts["LUT"] * uses / yosys["total"]["LUT"]
        rows.append([name, module, str(uses), *(_number(counts[r] * uses) for r in ("LUT", "DSP")), f"{share:.0%}"])
    return rows


def routed_row(figures: Table, manifests: Manifests) -> list[str]:
    """A placed and routed top, beside the estimate of its RTL for the default platform."""
    used, available = figures["used"], figures["available"]
    cells = [f"{used[name]:,} of {available[name]:,}" for name in ROUTED]
    clocks = [f"{figures[name]:g} MHz" for name in ("clock_mhz", "fmax_mhz")]
    total = manifests.get(figures["top"], {}).get("yosys", {}).get("total", {})
    return [figures["top"], figures["platform"], *cells, *clocks, *(_number(total.get(name)) for name in ROUTED)]


def stopped_row(figures: Table) -> list[str]:
    """A top that has no bitstream: what it would take, and what the tool said."""
    used, available = figures.get("used", {}), figures.get("available", {})
    cells = [f"{used[name]:,} of {available[name]:,}" if used else "-" for name in ROUTED]
    reached = "synthesised" if figures["synthesised"] else "compiled"
    return [figures["top"], figures["platform"], f"{reached}; {figures['stopped']}", *cells]


def routed_tables(found: list[Table], manifests: Manifests) -> dict[str, str]:
    """The blocks of the page about kernels for platforms with open tools."""
    routed = [one for one in found if "stopped" not in one]
    stopped = [stopped_row(one) for one in found if "stopped" in one]
    paths = [
        [one["top"], one["platform"], name, f"{path['estimate']:.2f}", f"{path['routed']:.2f}"]
        for one in routed
        for name, path in one["paths"].items()
    ]
    delays = [
        [one["platform"], one["top"], name, *(f"{entry[column]:.2f}" for column in ("table", "mean", "p90"))]
        for one in sorted(routed, key=lambda one: one["platform"])
        for name, entry in one["delays"].items()
    ]
    head = ["top", "platform", *ROUTED, "asked for", "routed", *(f"{name}, Yosys" for name in ROUTED)]
    return {
        "routed": rows_text(head, [routed_row(one, manifests) for one in routed], 2),
        "stopped": rows_text(["top", "platform", "how far", *ROUTED], stopped, 3),
        "routed-paths": rows_text(["top", "platform", "process", "openhls, ns", "routed, ns"], paths, 3),
        "routed-delays": rows_text(["platform", "top", "entry", "table, ns", "mean, ns", "90 %, ns"], delays, 3),
    }


def tables(manifests: Manifests, targets: Table) -> dict[str, str]:
    """The blocks of the page by name."""
    rate_head = ["target", "job", "memory", "limit", "measured cycles (RTL)", "formula", "verdict"]
    area_head = ["target", "resource", "limit", "estimate", "Yosys", "vendor", "verdict"]
    clock_head = ["target", "ns of logic", "longest path, estimate", "period, vendor"]
    papers = [
        [one["design"], *(_number(one.get(r)) for r in ("LUT", "DSP", "BRAM")), one.get("note", "")]
        for one in targets["paper"]
    ]
    return {
        "rates": rows_text(rate_head, [rate_row(manifests, target) for target in targets["rate"]], 4),
        "areas": rows_text(area_head, [row for target in targets["area"] for row in area_rows(manifests, target)], 2),
        "kernels": rows_text(
            ["top", *(f"{r}, Yosys" for r in RESOURCES), *clock_head],
            [kernel_row(name, manifest) for name, manifest in sorted(manifests.items())],
            1,
        ),
        "modules": rows_text(
            ["top", "module", "copies", "LUT, Yosys", "DSP, Yosys", "of the LUTs"],
            [row for name in targets["modules_of"] for row in module_rows(name, manifests.get(name, {}))],
            2,
        ),
        "lengths": rows_text(
            ["top", "d", "memory", "tokens: cycles", "cycles a token", "and fixed"],
            [row for name in targets["lengths_of"] for row in length_rows(name, manifests.get(name, {}))],
            3,
        ),
        "gains": rows_text(
            ["top", "cycles", "fewer cycles", "DSP, Yosys", "DSP x cycles"],
            [row for gain in targets["gain"] for row in gain_rows(manifests, gain)],
            1,
        ),
        "papers": rows_text(["design", "LUT", "DSP", "BRAM", ""], papers, 1),
    }


def texts() -> dict[Path, str]:
    """The page of the manifests as they are."""
    manifests = {path.stem: json.loads(path.read_text()) for path in sorted(MANIFESTS.glob("*.json"))}
    routed = [json.loads(path.read_text()) for path in sorted(MANIFESTS.glob("routed/*/*.json"))]
    routed.sort(key=lambda one: one["top"])
    blocks = tables(manifests, tomllib.loads(TARGETS.read_text())) | routed_tables(routed, manifests)
    return {PAGE: filled(PAGE, blocks)}
