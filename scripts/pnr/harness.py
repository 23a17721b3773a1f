# SPDX-License-Identifier: Apache-2.0
"""A design of four pins around a top, whose thousands of ports would fit no package.

Every input of the top comes from a register `in_N` of a chain, every output goes to a register `out_N`, from where a
second chain takes it out. So all paths of the kernel, also those at its ports, lie between registers of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rtl import manifest

CLOCK = "ap_clk"
KERNEL = "dut"  # the instance of the top

_CELLS = """
(* keep_hierarchy *) module harness_in (input clk, input d, output reg q);
  always @(posedge clk) q <= d;
endmodule
(* keep_hierarchy *) module harness_out (input clk, input o, output reg q);
  always @(posedge clk) q <= o;
endmodule
"""


@dataclass(frozen=True)
class Port:
    """A port of the top."""

    name: str
    direction: str
    width: int


def ports_of(folder: Path, top: str) -> list[Port]:
    """The ports of a top whose RTL is in `folder`/rtl."""
    return [Port(**port) for port in manifest.ports_of((folder / f"rtl/{top}.sv").read_text())]


def inputs_of(ports: list[Port]) -> list[tuple[Port, int]]:
    """Bits in the order of the chain: (port, bit)."""
    return _bits([port for port in ports if port.direction == "input" and port.name != CLOCK])


def outputs_of(ports: list[Port]) -> list[tuple[Port, int]]:
    return _bits([port for port in ports if port.direction == "output"])


def _bits(ports: list[Port]) -> list[tuple[Port, int]]:
    return [(port, bit) for port in ports for bit in range(port.width)]


def harness_text(top: str, ports: list[Port]) -> str:
    """SystemVerilog of the module `harness`."""
    inputs, outputs = inputs_of(ports), outputs_of(ports)
    n, m = len(inputs), len(outputs)
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        _CELLS,
        "module harness (input clk, input load, input chain_in, output reg chain_out);",
        f"  wire [{n - 1}:0] i;",
        f"  wire [{m - 1}:0] o, c;",
        f"  reg [{m - 1}:0] q;",
        "  always @(posedge clk) begin",
        f"    q <= load ? c : {{q[{m - 2}:0], 1'b0}};",
        f"    chain_out <= q[{m - 1}];",
        "  end",
    ]
    for number in range(n):
        before = f"i[{number - 1}]" if number else "chain_in"
        lines.append(f"  harness_in in_{number} (.clk(clk), .d({before}), .q(i[{number}]));")
    lines += [f"  harness_out out_{number} (.clk(clk), .o(o[{number}]), .q(c[{number}]));" for number in range(m)]
    pins = [f".{CLOCK}(clk)"]
    for bits, wire in ((inputs, "i"), (outputs, "o")):
        for number, (port, bit) in enumerate(bits):
            if bit == 0:
                pins.append(f".{port.name}({wire}[{number} +: {port.width}])")
    lines += [f"  {top} {KERNEL} (", "    " + ",\n    ".join(pins), "  );", "endmodule", ""]
    return "\n".join(lines)
