# SPDX-License-Identifier: Apache-2.0
"""The cells that nextpnr-ecp5 writes after packing, placing and routing, for simulation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from openhls.cosim.simulate import ToolError
from pnr.netlist import Bit, Cell

_FLOATING = "1"  # what a LUT reads at an input that is not connected


class Ecp5:
    """LUTs, carries and memories in LUTs are of one kind, TRELLIS_COMB."""

    def taken(self, register: dict[str, Any]) -> Bit:
        """From the LUT before it, or directly."""
        return _taken(register)

    def cells(self, name: str, cell: dict[str, Any]) -> list[Cell]:
        if cell["parameters"].get("MODE") == "RAMW_BLOCK":
            return []
        if cell["type"] not in _CONVERT:
            raise ToolError(f"{name}: {cell['type']} has no model")
        return _CONVERT[cell["type"]](name, cell["parameters"], _connected(cell))


def _connected(cell: dict[str, Any]) -> dict[str, Bit]:
    return {pin: bits[0] for pin, bits in cell["connections"].items() if bits}


def _text(value: str) -> str:
    """A parameter that is text and looks like a number ends with a space."""
    return value.rstrip()


def _taken(cell: dict[str, Any]) -> Bit:
    """What a register takes: from the LUT before it, or directly."""
    pins = _connected(cell)
    return pins["DI" if _text(cell["parameters"]["SD"]) == "1" else "M"]


def _register(name: str, parameters: dict[str, str], pins: dict[str, Bit]) -> list[Cell]:
    known = ("REGSET", "LSRMUX", "CLKMUX", "CEMUX", "SRMODE")
    kept = {key: f'"{_text(parameters[key])}"' for key in known if key in parameters}
    taken = _taken({"parameters": parameters, "connections": {pin: [bit] for pin, bit in pins.items()}})
    others: dict[str, Bit | list[Bit]] = {"CE": pins.get("CE", "1"), "LSR": pins.get("LSR", "0")}
    return [Cell("TRELLIS_FF", name, kept, {"CLK": pins["CLK"], "DI": taken, "Q": pins["Q"], **others})]


def _place(name: str, parameters: dict[str, str], pins: dict[str, Bit]) -> list[Cell]:
    """A LUT, or what is made of it, and the choice behind it."""
    if parameters.get("WREMUX", "WRE") != "WRE" or parameters.get("WCKMUX", "WCK") != "WCK":
        raise ToolError(f"{name}: a write port that is inverted has no model")
    mode = parameters.get("MODE", "LOGIC")
    bits: list[Bit] = list(reversed(parameters["INITVAL"]))
    found: dict[str, Bit | list[Bit]] = {"INIT": bits} | {pin: pins.get(pin, _FLOATING) for pin in "ABCD"}
    kind, others = _MODES[mode]
    found |= {pin: pins[pin] for pin in others if pin in pins}
    if mode == "CCU2":
        found["BREAKS"] = "1" if parameters["CCU2_INJECT1"] == "YES" else "0"
    cells = [Cell(kind, name, {}, found)]
    if "OFX" in pins:
        low, high = (pins["FXA"], pins["FXB"]) if "FXA" in pins else (pins["F"], pins["F1"])
        cells.append(Cell("routed_mux", name, {}, {"LOW": low, "HIGH": high, "M": pins["M"], "OFX": pins["OFX"]}))
    return cells


def _write_port(name: str, parameters: dict[str, str], pins: dict[str, Bit]) -> list[Cell]:
    return [Cell("routed_ramw", name, {}, dict(pins))]


def _multiplier(name: str, parameters: dict[str, str], pins: dict[str, Bit]) -> list[Cell]:
    if any(value != "NONE" for key, value in parameters.items() if re.fullmatch(r"REG_\w+_CLK", key)):
        raise ToolError(f"{name}: a multiplier with registers has no model")

    def vector(pin: str, width: int) -> list[Bit]:
        return [pins.get(f"{pin}{i}", _text(parameters.get(f"{pin}{i}MUX", "0"))) for i in range(width)]

    product: list[Bit] = [pins.get(f"P{i}", f"{name}.P{i}") for i in range(36)]
    signs = {pin: pins.get(pin, "0") for pin in ("SIGNEDA", "SIGNEDB")}
    return [Cell("routed_multiplier", name, {}, {"A": vector("A", 18), "B": vector("B", 18), "P": product, **signs})]


_MODES = {
    "LOGIC": ("routed_lut", ("F",)),
    "CCU2": ("routed_carry", ("F", "FCI", "FCO")),
    "DPRAM": ("routed_ram", ("F", "WD", "WAD0", "WAD1", "WAD2", "WAD3", "WRE", "WCK")),
}
_CONVERT: dict[str, Callable[[str, dict[str, str], dict[str, Bit]], list[Cell]]] = {
    "TRELLIS_FF": _register,
    "TRELLIS_COMB": _place,
    "TRELLIS_RAMW": _write_port,
    "MULT18X18D": _multiplier,
}
