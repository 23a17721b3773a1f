# SPDX-License-Identifier: Apache-2.0
"""The commands behind `make rtl` and similar targets. Each takes a kernel, a top, or nothing for all of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from openhls.emit.expect import check_intervals, read_expectation
from openhls.errors import OpenHlsError
from openhls.estimate import estimate
from rtl import manifest
from rtl.build import OUT, build, stamp_of
from rtl.kernels import ROOT, Top, find_tops


def build_one(top: Top) -> str:
    """RTL and schedule in build/rtl, manifest in bitstreams. Raises OpenHlsError; also where a loop misses its II."""
    built = build(top)
    check_intervals(built.design.regions, built.program.sources, read_expectation(top.description))
    manifest.save(top, manifest.make(built))
    loops = [region for region in built.design.regions if region.interval is not None]
    slowest = max(region.slowest_ns for region in built.design.regions)
    return (
        f"{len(built.design.files)} modules, {len(loops)} loops, longest path {slowest:.2f} ns (estimate); "
        f"{(OUT / top.name / 'schedule.txt').relative_to(ROOT)}"
    )


def estimate_one(top: Top) -> str:
    """Estimate the area with Yosys and record it in the manifest. Builds RTL that is not up to date first."""
    before = manifest.load_current(top)
    if stamp_of(top) is None:
        build(top)
    area = estimate(OUT / top.name, top.name, cache=OUT / "area", progress=lambda line: print(f"  {line}", flush=True))
    manifest.record(top, "yosys", area, before)
    counts = ", ".join(f"{count:,} {name}" for name, count in area["total"].items() if count)
    return f"{counts} ({area['tool']}, no place and route)"


COMMANDS: dict[str, tuple[Callable[[Top], str], str]] = {
    "build": (build_one, "RTL, schedule and manifest"),
    "estimate": (estimate_one, "area by Yosys, into the manifest"),
}


def main(arguments: list[str] | None = None) -> int:
    """0: all done; 1: at least one top failed, each with its reason on stderr; 2: no such kernel."""
    parser = argparse.ArgumentParser(prog="python -m rtl", description=__doc__)
    parser.add_argument("command", choices=COMMANDS, help="; ".join(f"{k}: {v[1]}" for k, v in COMMANDS.items()))
    parser.add_argument("kernel", nargs="?", default="", help="a kernel or a top; default: all")
    options = parser.parse_args(arguments)
    command = COMMANDS[options.command][0]
    try:
        tops = find_tops(options.kernel)
    except OpenHlsError as error:
        print(f"rtl: {error}", file=sys.stderr)
        return 2
    failed = 0
    for top in tops:
        try:
            print(f"{top.name}: {command(top)}", flush=True)
        except OpenHlsError as error:
            failed += 1
            print(f"{top.name}: FAILED: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0
