# SPDX-License-Identifier: Apache-2.0
"""A netlist of the harness as a module with the ports of the kernel, for simulation.

The registers of the harness are taken out. What they drove are the inputs of the kernel, what they took its outputs.
Everything else is as the tools wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pnr.harness import CLOCK, Port, inputs_of, outputs_of

CELLS = Path(__file__).resolve().parent / "cells"
_HARNESS = re.compile(r"(in|out)_(\d+)\.")
_OTHERS = re.compile(r"q_|chain_|load|clk|\$gbuf|\$iopadmap")  # of the harness; and the pins

Bit = int | str


@dataclass(frozen=True)
class Cell:
    """`pins`: each a bit, or a list of them with the low one first."""

    kind: str
    name: str
    parameters: dict[str, str]
    pins: dict[str, Bit | list[Bit]]


class Family(Protocol):
    """How cells of a family of devices become cells that there are models of (`cells/`, and Yosys' own)."""

    def taken(self, register: dict[str, Any]) -> Bit:
        """The bit that a register takes."""

    def cells(self, name: str, cell: dict[str, Any]) -> list[Cell]:
        """Raises ToolError for a cell without a model."""


def kernel_of(design: Path, top: str, ports: list[Port], family: Family) -> str:
    """Verilog of the module `top` from a netlist of the harness that Yosys or nextpnr wrote.

    Raises ToolError for cells without a model.
    """
    cells = cells_of(design)
    chain = {(found[1], int(found[2])): cell for name, cell in cells.items() if (found := _HARNESS.match(name))}
    clock = next(cell["connections"]["CLK"][0] for cell in chain.values())
    pins: dict[Port, list[Bit]] = {}
    for number, (port, _) in enumerate(inputs_of(ports)):
        pins.setdefault(port, []).extend(chain["in", number]["connections"]["Q"] or ["x"])
    for number, (port, _) in enumerate(outputs_of(ports)):
        pins.setdefault(port, []).append(family.taken(chain["out", number]))
    pins |= {port: [clock] for port in ports if port.name == CLOCK}
    kept = (made for name, cell in kernel_cells(cells).items() for made in family.cells(name, cell))
    return module_text(top, {port: pins[port] for port in ports}, kept)


def cells_of(design: Path) -> dict[str, Any]:
    """The cells of the one module that is no model; scopes are none."""
    modules = json.loads(design.read_text())["modules"].values()
    (module,) = (each for each in modules if not {"blackbox", "whitebox"} & each.get("attributes", {}).keys())
    return {name: cell for name, cell in module["cells"].items() if cell["type"] != "$scopeinfo"}


def kernel_cells(cells: dict[str, Any]) -> dict[str, Any]:
    """The cells that do not belong to the harness, its pins or the clock."""
    return {name: cell for name, cell in cells.items() if not _HARNESS.match(name) and not _OTHERS.match(name)}


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
