# SPDX-License-Identifier: Apache-2.0
"""Recorded cases in Icarus Verilog, which knows X: what has no value must never reach a handshake or an output.

The model of Verilator starts with random bits, which a comparison may miss by luck. Here every register without a reset
starts as X, and the words of a stream are X whenever nothing is offered. Slow, so for small designs.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from openhls.cosim.simulate import ToolError, run
from openhls.emit.design import Design
from openhls.errors import OpenHlsError
from openhls.ir import Direction, Stream

PATIENCE = 5000  # cycles without a word before a job counts as stuck


def words_of(width: int) -> int:
    return (width + 31) // 32


def value_at(width: int, at: str) -> str:
    """The value of `width` bits that the record holds from word `at` on."""
    return "{" + ", ".join(f"record[{at} + {i}]" for i in reversed(range(words_of(width)))) + "}"


def source(stream: Stream) -> str:
    """Offers the recorded words at random times; a word that is offered stays."""
    name, words = stream.name, words_of(stream.width)
    return f"""
  logic [{stream.width - 1}:0] {name}_tdata = 'x;
  logic {name}_tvalid = 0, {name}_tready;
  integer {name}_from, {name}_count = 0, {name}_moved = 0;
  always @(negedge ap_clk) begin
    if (!{name}_tvalid && {name}_moved < {name}_count && $urandom(seed) % pace == 0) {name}_tvalid = 1;
    {name}_tdata = {name}_tvalid ? {value_at(stream.width, f"{name}_from + {name}_moved * {words}")} : 'x;
  end
  always @(posedge ap_clk) if (ap_rst_n) begin
    known("{name}_tready", {name}_tready);
    if ({name}_tvalid && {name}_tready) begin
      {name}_moved <= {name}_moved + 1;
      {name}_tvalid <= 0;
      idle <= 0;
    end
  end"""


def sink(stream: Stream) -> str:
    """Takes words at random times and compares each with the record, X being equal to nothing."""
    name, words = stream.name, words_of(stream.width)
    return f"""
  logic [{stream.width - 1}:0] {name}_tdata, {name}_wanted;
  logic {name}_tvalid, {name}_tready = 0;
  integer {name}_from, {name}_count = 0, {name}_moved = 0;
  always @(negedge ap_clk) {name}_tready = $urandom(seed) % pace == 0;
  always @(posedge ap_clk) if (ap_rst_n) begin
    known("{name}_tvalid", {name}_tvalid);
    {name}_wanted = {value_at(stream.width, f"{name}_from + {name}_moved * {words}")};
    if ({name}_tvalid && {name}_tready) begin
      if ({name}_moved >= {name}_count) fail("{name}: a word too many");
      else if ({name}_tdata !== {name}_wanted) begin
        $display("{name}, word %0d: %h, expected %h", {name}_moved, {name}_tdata, {name}_wanted);
        fail("a wrong word");
      end
      {name}_moved <= {name}_moved + 1;
      compared <= compared + 1;
      idle <= 0;
    end
  end"""


def testbench_text(design: Design, words: int) -> str:
    """A module `testbench` that runs the cases of the record, `words` 32-bit words in cases.hex."""
    process = design.process
    streams = {stream.name: stream for stream in process.streams}
    scalars = {scalar.name: scalar for scalar in process.scalars}
    inputs = [streams[n] for n in design.arguments if n in streams and streams[n].direction is Direction.READ]
    outputs = [streams[n] for n in design.arguments if n in streams and streams[n].direction is Direction.WRITE]
    taken = [name for key in design.arguments for name in (key, f"{key}_in") if name in scalars]
    widths = {name: operand.width for name, operand in process.outputs}
    results = [*(["result"] if "result" in widths else []), *(name for name in design.arguments if name in widths)]
    nets = {name: "ap_return" if name == "result" else name for name in widths}
    load = [
        f"{name} = {value_at(scalars[name].width, 'at')}; at = at + {words_of(scalars[name].width)};" for name in taken
    ]
    for stream in (*inputs, *outputs):
        count = f"{stream.name}_count"
        load.append(f"{count} = record[at]; {stream.name}_from = at + 1; {stream.name}_moved = 0;")
        load.append(f"at = at + 1 + {count} * {words_of(stream.width)};")
    check = [f'if ({s.name}_moved != {s.name}_count) fail("{s.name}: not all words");' for s in (*inputs, *outputs)]
    for name in results:
        wanted = f"{name}_wanted"
        check.append(f"{wanted} = {value_at(widths[name], 'at')}; at = at + {words_of(widths[name])};")
        check.append(f'if ({nets[name]} !== {wanted}) fail("output {name}"); compared = compared + 1;')
    lines = "\n      ".join
    return f"""// Written by openhls.
module testbench;
  reg [31:0] record[{words}];
  logic ap_clk = 0, ap_rst_n = 0, ap_start = 0, ap_done, ap_ready, ap_idle;
  integer at = 1, seed = 1, pace = 1, idle = 0, compared = 0, cases;
{"".join(f"  logic [{scalars[name].width - 1}:0] {name};{chr(10)}" for name in taken)}\
{"".join(f"  logic [{widths[name] - 1}:0] {nets[name]}, {name}_wanted;{chr(10)}" for name in results)}
  always #1 ap_clk = !ap_clk;

  task fail(input [8*64-1:0] what);
    begin
      $display("failed: %0s, seed %0d", what, seed);
      $finish;
      $stop;
    end
  endtask

  task known(input [8*64-1:0] what, input value);
    if (value !== 1'b0 && value !== 1'b1) begin
      $display("%0s is %b", what, value);
      fail("a handshake without a value");
    end
  endtask

  always @(posedge ap_clk) if (ap_rst_n) begin
    known("ap_done", ap_done);
    known("ap_ready", ap_ready);
    known("ap_idle", ap_idle);
    idle <= idle + 1;
    if (idle > {PATIENCE}) fail("no word moves");
  end
{"".join(source(stream) for stream in inputs)}{"".join(sink(stream) for stream in outputs)}

  {design.top} dut (.*);

  initial begin
    $readmemh("cases.hex", record);
    repeat (4) @(negedge ap_clk);
    ap_rst_n = 1;
    for (cases = 0; cases < record[0]; cases = cases + 1) begin
      seed = record[at];
      at = at + 1;
      pace = 1 + cases % 3;
      {lines(load)}
      idle = 0;
      ap_start = 1;
      @(posedge ap_clk);
      while (!ap_done) @(posedge ap_clk);
      @(negedge ap_clk);
      ap_start = 0;
      repeat (3) @(negedge ap_clk);
      {lines(check)}
    end
    $display("passed %0d", compared);
    $finish;
  end
endmodule
"""


def run_icarus(design: Design, record: Path) -> int:
    """Runs the recorded cases (see cosim/reference.hpp); returns how many values were compared.

    Raises OpenHlsError with what Icarus printed if a value differs, is X or a job stands still.
    """
    if shutil.which("iverilog") is None:
        raise ToolError("Icarus Verilog is missing: apt install iverilog")
    if design.registers is not None or design.memories:
        raise OpenHlsError(f"Icarus: {design.top} has registers or memory ports; only streams and pins are driven here")
    folder = design.folder / "icarus"
    folder.mkdir(exist_ok=True)
    data = record.read_bytes()
    words = struct.unpack(f"<{len(data) // 4}I", data)
    (folder / "cases.hex").write_text("".join(f"{word:x}\n" for word in words))
    (folder / "testbench.sv").write_text(testbench_text(design, len(words)))
    sources = [*design.library, *design.files, folder / "testbench.sv"]
    run(["iverilog", "-g2012", "-s", "testbench", "-o", folder / "testbench.vvp", *sources])
    said = run(["vvp", "-n", folder / "testbench.vvp"], cwd=folder)
    if "passed" not in said:
        raise OpenHlsError(f"Icarus: {said.strip()}")
    return int(said.split()[-1])
