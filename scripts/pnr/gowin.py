# SPDX-License-Identifier: Apache-2.0
"""The cells of Gowin's devices as Yosys writes them, for simulation. What nextpnr makes of them has no models yet."""

from __future__ import annotations

import re
from typing import Any

from openhls.cosim.simulate import ToolError
from pnr.netlist import Bit, Cell

# Yosys has models of these, and cells/gowin.v of multipliers. Neither has one of a block of memory of this family.
_KNOWN = re.compile(r"LUT[1-4]|MUX2_LUT[5-8]|DFF[SR]?E?|ALU|RAM16SDP4|VCC|GND|MULT12X12|MULTALU27X18")


class Gowin:
    """Cells stay as they are."""

    def taken(self, register: dict[str, Any]) -> Bit:
        bit: Bit = register["connections"]["D"][0]
        return bit

    def cells(self, name: str, cell: dict[str, Any]) -> list[Cell]:
        if not _KNOWN.fullmatch(cell["type"]):
            raise ToolError(f"{name}: {cell['type']} has no model")
        parameters = {key: f"{len(value)}'b{value}" for key, value in cell["parameters"].items()}
        pins = {pin: bits[0] if len(bits) == 1 else list(bits) for pin, bits in cell["connections"].items() if bits}
        return [Cell(cell["type"], name, parameters, pins)]
