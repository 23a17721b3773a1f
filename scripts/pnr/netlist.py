# SPDX-License-Identifier: Apache-2.0
"""The netlist that the router wrote, as a module with the ports of the kernel, for simulation.

The registers of the harness are taken out. What they drove are the inputs of the kernel, what they took its outputs.
Everything else is as it was placed and routed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openhls.backend.simulate import ToolError
from pnr.harness import CLOCK, Port, inputs_of, outputs_of

CELLS = Path(__file__).resolve().parent / "cells"
_HARNESS = re.compile(r"(in|out)_(\d+)\.")
_OTHERS = re.compile(r"q_|chain_|load|clk|\$gbuf")  # of the harness; and the pins
_FLOATING = "1"  # what a LUT reads at an input that is not connected

Bit = int | str


@dataclass(frozen=True)
class Cell:
    """`pins`: each a bit, or a list of them with the low one first."""

    kind: str
    name: str
    parameters: dict[str, str]
    pins: dict[str, Bit | list[Bit]]


def kernel_of(routed: Path, top: str, ports: list[Port]) -> str:
    """Verilog of the module `top` from nextpnr-ecp5's netlist of the harness.

    Raises ToolError for cells without a model.
    """
    (module,) = json.loads(routed.read_text())["modules"].values()
    cells: dict[str, Any] = module["cells"]
    chain: dict[tuple[str, int], dict[str, Any]] = {}
    for name, cell in cells.items():
        if found := _HARNESS.match(name):
            chain[found[1], int(found[2])] = cell
    clock = next(cell["connections"]["CLK"][0] for cell in chain.values())
    pins: dict[Port, list[Bit]] = {}
    for number, (port, _) in enumerate(inputs_of(ports)):
        pins.setdefault(port, []).extend(chain["in", number]["connections"]["Q"] or ["x"])
    for number, (port, _) in enumerate(outputs_of(ports)):
        pins.setdefault(port, []).append(_taken(chain["out", number]))
    pins |= {port: [clock] for port in ports if port.name == CLOCK}
    kept = (
        made
        for name, cell in kernel_cells(cells).items()
        if cell["parameters"].get("MODE") != "RAMW_BLOCK"
        for made in _convert(name, cell)
    )
    return module_text(top, {port: pins[port] for port in ports}, kept)


def kernel_cells(cells: dict[str, Any]) -> dict[str, Any]:
    """The cells that do not belong to the harness, its pins or the clock."""
    return {name: cell for name, cell in cells.items() if not _HARNESS.match(name) and not _OTHERS.match(name)}


def _convert(name: str, cell: dict[str, Any]) -> list[Cell]:
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


def module_text(top: str, pins: dict[Port, list[Bit]], cells: Iterable[Cell]) -> str:
    """Verilog of cells between ports."""
    nets: dict[Bit, str] = {}

    def net(bit: Bit) -> str:
        if bit in ("0", "1", "x"):
            return f"1'b{bit}"
        return nets.setdefault(bit, f"n{len(nets)}")

    def term(bits: Bit | list[Bit]) -> str:
        if not isinstance(bits, list):
            return net(bits)
        return "{" + ", ".join(net(bit) for bit in reversed(bits)) + "}"

    body = []
    for number, cell in enumerate(cells):
        parameters = ", ".join(f".{key}({value})" for key, value in cell.parameters.items())
        connections = ", ".join(f".{pin}({term(bits)})" for pin, bits in cell.pins.items())
        body.append(f"  {cell.kind} {f'#({parameters}) ' if parameters else ''}c{number} ({connections});")
    for port, bits in pins.items():
        for place, bit in enumerate(bits):
            of_port = f"{port.name}[{place}]" if port.width > 1 else port.name
            if port.direction == "output":
                body.append(f"  assign {of_port} = {net(bit)};")
            elif bit != "x":
                body.append(f"  assign {net(bit)} = {of_port};")
    heads = [f"{port.direction} {f'[{port.width - 1}:0] ' if port.width > 1 else ''}{port.name}" for port in pins]
    lines = [f"module {top} (", "  " + ",\n  ".join(heads), ");", *(f"  wire {name};" for name in nets.values())]
    return "\n".join([*lines, *body, "endmodule", ""])
