# SPDX-License-Identifier: Apache-2.0
"""The command behind `make link PLATFORM=ecp5-85|tang138k`: C++ to a bitstream, with open tools alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from openhls.errors import OpenHlsError
from openhls.schedule.target import platform_names, target_of
from pnr import figures, route, synthesis
from pnr.tools import Stopped
from rtl.build import Built, build
from rtl.kernels import ROOT, Top, find_tops

OUT = ROOT / "build/pnr"


def compile_for(top: Top, platform: str, out: Path) -> Built:
    """The RTL of a kernel for `platform` in `out`/<platform>/<top>. Raises OpenHlsError."""
    defines = tuple(route.flow_of(platform).get("defines", {}).get(top.kernel, ()))
    return build(top, out / platform, target_of(platform=platform), defines)


def implement(built: Built, minutes: float | None = None) -> Path:
    """Synthesises, places, routes and packs RTL; returns the bitstream.

    Raises Stopped where a tool fails or takes more than `minutes`.
    """
    folder, target, top = built.folder, built.design.target, built.top
    for old in (synthesis.DESIGN, route.ROUTED, route.REPORT):
        (folder / old).unlink(missing_ok=True)
    synthesis.synthesise(folder, route.flow_of(target.platform)["flow"], top.name, minutes)
    route.route(folder, target, top.kernel, minutes)
    return route.pack(folder, target, top.name)


def main(arguments: list[str] | None = None) -> int:
    """0: done; 1: a tool failed or a kernel does not fit, and the figures say how far it came; 2: no such kernel."""
    parser = argparse.ArgumentParser(prog="python -m pnr", description=__doc__)
    parser.add_argument("kernel", help="a kernel (all its tops) or a top")
    platforms = [name for name in platform_names() if route.flow_of(name)]
    parser.add_argument("--platform", choices=platforms, required=True)
    parser.add_argument("--minutes", type=float, default=60, help="the most that one tool may take (default 60)")
    options = parser.parse_args(arguments)
    try:
        tops = find_tops(options.kernel)
    except OpenHlsError as error:
        print(f"make link: {error}", file=sys.stderr)
        return 2
    status = 0
    for top in tops:
        try:
            built = compile_for(top, options.platform, OUT)
            image = implement(built, options.minutes)
            found = figures.collect(built)
        except Stopped as stopped:
            status = 1
            print(f"make link: {top.name} on {options.platform}: {stopped}", file=sys.stderr)
            figures.save(figures.stopped(built, str(stopped)))
            continue
        except OpenHlsError as error:
            print(f"make link: {top.name} on {options.platform}: {error}", file=sys.stderr)
            return 1
        figures.save(found)
        used = ", ".join(f"{count:,} {name}" for name, count in found["used"].items())
        print(f"{top.name}: {used}, {found['fmax_mhz']} MHz routed; {image.relative_to(ROOT)}", flush=True)
    return status
