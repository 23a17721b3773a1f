# SPDX-License-Identifier: Apache-2.0
"""The harness, the netlist without it, and the router's times, on designs of a few cells."""

import json
import re
from pathlib import Path

import pytest

from openhls.cosim import simulate
from openhls.cosim.simulate import ToolError
from pnr import netlist, paths
from pnr.ecp5 import Ecp5
from pnr.figures import count, resource
from pnr.gowin import Gowin
from pnr.harness import Port, harness_text

PORTS = [
    Port("ap_clk", "input", 1),
    Port("ap_rst_n", "input", 1),
    Port("a", "input", 2),
    Port("sum", "output", 1),
    Port("low", "output", 1),
]


def test_every_bit_has_a_register_of_its_own(tmp_path: Path) -> None:
    text = harness_text("top", PORTS)
    assert re.findall(r"harness_in (\w+) \(.clk\(clk\), .d\(([^)]+)\)", text) == [
        ("in_0", "chain_in"),
        ("in_1", "i[0]"),
        ("in_2", "i[1]"),
    ]
    assert ".ap_rst_n(i[0 +: 1])" in text
    assert ".a(i[1 +: 2])" in text
    (tmp_path / "harness.sv").write_text(text)
    (tmp_path / "top.sv").write_text(
        "module top(input ap_clk, input ap_rst_n, input [1:0] a, output sum, output low);\n"
        "  assign sum = ^a;\n  assign low = a[0];\nendmodule\n"
    )
    files = [tmp_path / "top.sv", tmp_path / "harness.sv"]
    simulate.run([simulate.verilator(), "--lint-only", "-Wno-UNUSEDSIGNAL", "--top-module", "harness", *files])


def register(name: str, taken: int, out: int, sd: str = "1 ") -> dict:
    pins = {"CLK": [2], "DI" if sd == "1 " else "M": [taken], "Q": [out], "CE": [], "LSR": []}
    return {name: {"type": "TRELLIS_FF", "parameters": {"SD": sd, "CEMUX": "1 "}, "connections": pins}}


def lut(name: str, table: str, **pins: int) -> dict:
    connections = {pin: [bit] for pin, bit in pins.items()}
    return {name: {"type": "TRELLIS_COMB", "parameters": {"INITVAL": table}, "connections": connections}}


def routed(tmp_path: Path, *cells: dict) -> Path:
    """The netlist of a harness around `sum`, a register behind the exclusive or of `a`."""
    chain = register("in_0.q_TRELLIS_FF_Q", 3, 10) | register("in_1.q_TRELLIS_FF_Q", 10, 11, "0 ")
    chain |= register("in_2.q_TRELLIS_FF_Q", 11, 12) | register("out_0.q_TRELLIS_FF_Q", 14, 15, "0 ")
    chain |= register("out_1.q_TRELLIS_FF_Q", 11, 18)
    kernel = register("dut.sum_TRELLIS_FF_Q", 13, 14) | lut("dut.x_LUT4_Z", "0110" * 4, A=11, B=12, F=13)
    others = lut("$PACKER_VCC", "1" * 16, F=16) | lut("q_LUT4_Z", "1" * 16, A=15, F=17)
    cells_by_name = chain | kernel | others
    for more in cells:
        cells_by_name |= more
    path = tmp_path / "routed.json"
    path.write_text(json.dumps({"modules": {"top": {"cells": cells_by_name}}}))
    return path


def test_the_kernel_comes_out_of_the_harness(tmp_path: Path) -> None:
    text = netlist.kernel_of(routed(tmp_path), "top", PORTS, Ecp5())
    assert "input [1:0] a" in text
    (wires,) = re.findall(r"routed_lut c\d+ \(.INIT\((?:[^)]*)\), .A\((\w+)\), .B\((\w+)\), .C\(1'b1\)", text)
    assert [f"assign {wire} = a[{place}];" in text for place, wire in enumerate(wires)] == [True, True]
    assert text.count("TRELLIS_FF") == 1  # those of the harness are gone
    registers = """module TRELLIS_FF #(parameter CEMUX = "") (input CLK, DI, CE, LSR, output reg Q);
      always @(posedge CLK) Q <= DI;
    endmodule"""
    bench = """module bench;
      reg clk = 0; reg [1:0] a; wire sum, low; integer i;
      top dut(.ap_clk(clk), .ap_rst_n(1'b1), .a(a), .sum(sum), .low(low));
      initial begin
        for (i = 0; i < 4; i = i + 1) begin
          a = i; #1 clk = 1; #1 clk = 0;
          if (sum !== ^a || low !== a[0]) $fatal(1, "wrong");
        end
        $display("passed");
        $finish;
      end
    endmodule"""
    (tmp_path / "all.sv").write_text(f"{text}\n{registers}\n{bench}\n")
    models = netlist.CELLS / "ecp5.v"
    simulate.run(["iverilog", "-g2012", "-s", "bench", "-o", tmp_path / "bench", tmp_path / "all.sv", models])
    assert "passed" in simulate.run(["vvp", "-n", tmp_path / "bench"])


def gowin_register(name: str, taken: int, out: int) -> dict:
    return {name: {"type": "DFF", "parameters": {}, "connections": {"CLK": [2], "D": [taken], "Q": [out]}}}


def test_a_netlist_of_yosys_computes_with_the_multipliers_of_a_gowin_device(tmp_path: Path) -> None:
    ports = [Port("ap_clk", "input", 1), Port("a", "input", 2), Port("y", "output", 24), Port("z", "output", 48)]
    cells = gowin_register("in_0.q_DFF_Q", 3, 10) | gowin_register("in_1.q_DFF_Q", 10, 11)
    for number in range(72):
        cells |= gowin_register(f"out_{number}.q_DFF_Q", 100 + number, 300 + number)
    zero, negative = [19], [10, *[11] * 11]  # a is signed, in as many copies of its upper bit as are needed
    small = {"A": negative, "B": negative, "CLK": zero * 2, "CE": zero * 2, "RESET": zero * 2}
    cells["dut.small"] = {"type": "MULT12X12", "parameters": {}, "connections": small | {"DOUT": [*range(100, 124)]}}
    wide = {pin: zero * width for pin, width in {"SIA": 27, "D": 26, "C": 48, "CASI": 48, "ADDSUB": 2}.items()}
    wide |= {pin: zero * 2 for pin in ("CLK", "CE", "RESET")} | {"A": [10, *[11] * 26], "B": [10, *[11] * 17]}
    wide |= {pin: zero for pin in ("ACCSEL", "PSEL", "ASEL", "PADDSUB", "CSEL", "CASISEL")}
    connections = wide | {"DOUT": [*range(124, 172)]}
    cells["dut.wide"] = {"type": "MULTALU27X18", "parameters": {"C_SEL": "0"}, "connections": connections}
    cells["dut.zero"] = {"type": "GND", "parameters": {}, "connections": {"G": zero}}
    cells["dut"] = {"type": "$scopeinfo", "parameters": {}, "connections": {}}
    model = {"attributes": {"blackbox": "1"}, "cells": {}}
    design = tmp_path / "design.json"
    design.write_text(json.dumps({"modules": {"harness": {"cells": cells}, "GND": model}}))
    text = netlist.kernel_of(design, "top", ports, Gowin())
    bench = """module GND(output G); assign G = 0; endmodule
    module bench;
      reg signed [1:0] a; wire signed [23:0] y; wire signed [47:0] z; integer i;
      top dut(.ap_clk(1'b0), .a(a), .y(y), .z(z));
      initial begin
        for (i = -2; i < 2; i = i + 1) begin
          a = i; #1 if (y !== i * i || z !== i * i) $fatal(1, "wrong");
        end
        $display("passed");
      end
    endmodule"""
    (tmp_path / "all.sv").write_text(f"{text}\n{bench}\n")
    models = netlist.CELLS / "gowin.v"
    simulate.run(["iverilog", "-g2012", "-s", "bench", "-o", tmp_path / "bench", tmp_path / "all.sv", models])
    assert "passed" in simulate.run(["vvp", "-n", tmp_path / "bench"])
    (tmp_path / "all.sv").write_text(f"{text}\n{bench}\n".replace(".C_SEL(1'b0)", ".C_SEL(1'b1)"))
    simulate.run(["iverilog", "-g2012", "-s", "bench", "-o", tmp_path / "bench", tmp_path / "all.sv", models])
    with pytest.raises(ToolError, match="wrong"):
        simulate.run(["vvp", "-n", tmp_path / "bench"])


def test_a_cell_without_a_model_is_refused(tmp_path: Path) -> None:
    pins = {"connections": {"P0": [20]}, "type": "MULT18X18D"}
    cell = {"dut.m": pins | {"parameters": {"REG_OUTPUT_CLK": "CLK0"}}}
    with pytest.raises(ToolError, match="a multiplier with registers has no model"):
        netlist.kernel_of(routed(tmp_path, cell), "top", PORTS, Ecp5())
    memory = {"dut.m": pins | {"type": "DP16KD", "parameters": {}}}
    with pytest.raises(ToolError, match=r"dut\.m: DP16KD has no model"):
        netlist.kernel_of(routed(tmp_path, memory), "top", PORTS, Ecp5())
    with pytest.raises(ToolError, match=r"dut\.m: SDPX9B has no model"):
        Gowin().cells("dut.m", {"type": "SDPX9B"})


def test_figures_are_of_the_kernel_alone(tmp_path: Path) -> None:
    (module,) = json.loads(routed(tmp_path).read_text())["modules"].values()
    assert count(module["cells"]) == {"LUT": 1, "FF": 1, "DSP": 0, "BRAM": 0}


def test_kinds_of_cells_count_as_resources() -> None:
    kinds = ("TRELLIS_COMB", "DP16KD", "LUT3", "ALU", "DFFRE", "MULTALU27X18", "SDPX9B", "SPINE_SELECT", "IBUF")
    assert [resource(kind) for kind in kinds] == ["LUT", "BRAM", "LUT", "LUT", "FF", "DSP", "BRAM", "", ""]


SDF = """(DELAYFILE
  (CELL
    (CELLTYPE "top")
    (INSTANCE )
    (DELAY
      (ABSOLUTE
        (INTERCONNECT clk/O dut.process.a/CLK (900:900:900) (900:900:900))
        (INTERCONNECT dut.process.a/Q dut.process.lut/A (100:100:300) (0:0:200))
        (INTERCONNECT dut.process.lut/F dut.process.mark_run.b/DI (100:100:500) (100:100:500))
        (INTERCONNECT dut.process.a/Q in_0.q/DI (100:100:9000) (100:100:9000))
      )
    )
  )
  (CELL
    (CELLTYPE "TRELLIS_FF")
    (INSTANCE dut.process.a)
        (IOPATH CLK Q (300:350:400) (300:350:400))
  )
  (CELL
    (CELLTYPE "TRELLIS_COMB")
    (INSTANCE dut.process.lut)
        (IOPATH A F (100:150:200) (100:150:200))
  )
  (CELL
    (CELLTYPE "TRELLIS_FF")
    (INSTANCE dut.process.mark_run.b)
      (SETUPHOLD (posedge DI) (posedge CLK) (0:0:100) (0:0:0))
  )
  (CELL
    (CELLTYPE "TRELLIS_FF")
    (INSTANCE in_0.q)
      (SETUPHOLD (posedge DI) (posedge CLK) (0:0:100) (0:0:0))
  )
)
"""


def test_a_path_counts_for_the_process_in_which_it_ends(tmp_path: Path) -> None:
    (tmp_path / "x.sdf").write_text(SDF)
    timing = paths.read_sdf(tmp_path / "x.sdf")
    # 0.4 of the register, 0.3 of the net, 0.2 of the LUT, 0.5 of the net, 0.1 of set-up
    assert paths.longest_paths(timing, "top") == {"mark": pytest.approx(1.5)}
    found = paths.compared(timing, {"clock_to_q": 1.0, "level": 1.0})
    assert list(found) == ["clock_to_q"]
    assert found["clock_to_q"]["mean"] == pytest.approx(5.05)  # 0.7 and 9.4
    assert paths.process_of("dut.process.x_run.y_run.q", "top") == "y"
    assert (paths.process_of("dut.process.q", "top"), paths.process_of("in_0.q", "top")) == ("top", "")
