# SPDX-License-Identifier: Apache-2.0
"""The command behind `make link PLATFORM=ecp5-85|tang138k`: C++ to a bitstream, with open tools alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from openhls.backend.target import platform_names, target_of
from openhls.errors import OpenHlsError
from pnr import figures, route, synthesis
from rtl.build import Built, build
from rtl.kernels import ROOT, Top, find_tops

OUT = ROOT / "build/pnr"


def link(top: Top, platform: str, out: Path = OUT) -> tuple[Built, Path]:
    """A kernel compiled for `platform`, synthesised, placed, routed and packed in `out`/<platform>/<top>.

    Returns the RTL and the bitstream. Raises OpenHlsError.
    """
    target = target_of(platform=platform)
    defines = tuple(route.flow_of(platform).get("defines", {}).get(top.kernel, ()))
    built = build(top, out / platform, target, defines)
    synthesis.synthesise(built.folder, route.flow_of(platform)["flow"], top.name)
    route.route(built.folder, target, top.kernel)
    return built, route.pack(built.folder, target, top.name)


def main(arguments: list[str] | None = None) -> int:
    """0: done; 1: a tool failed or the kernel does not fit; 2: no such kernel."""
    parser = argparse.ArgumentParser(prog="python -m pnr", description=__doc__)
    parser.add_argument("kernel", help="a kernel (all its tops) or a top")
    platforms = [name for name in platform_names() if route.flow_of(name)]
    parser.add_argument("--platform", choices=platforms, required=True)
    options = parser.parse_args(arguments)
    try:
        tops = find_tops(options.kernel)
    except OpenHlsError as error:
        print(f"make link: {error}", file=sys.stderr)
        return 2
    for top in tops:
        try:
            built, image = link(top, options.platform)
            found = figures.collect(built)
            figures.save(found)
        except OpenHlsError as error:
            print(f"make link: {top.name} on {options.platform}: {error}", file=sys.stderr)
            return 1
        used = ", ".join(f"{count:,} {name}" for name, count in found["used"].items())
        print(f"{top.name}: {used}, {found['fmax_mhz']} MHz routed; {image.relative_to(ROOT)}", flush=True)
    return 0
