# SPDX-License-Identifier: Apache-2.0
"""Area: what Yosys' cells count as, and that known hardware gets known figures."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from openhls import estimate, store, synthesis
from openhls.cosim.simulate import LIBRARY, ToolError, tools
from openhls.synthesis import readable

DESIGN = """
module adder(input logic clk, input logic [31:0] a, b, output logic [31:0] s);
  always_ff @(posedge clk) s <= a + b;
endmodule
module memory(input logic clk, we, input logic [9:0] at, input logic [35:0] d, output logic [35:0] q);
  logic [35:0] words [1024];
  always_ff @(posedge clk) begin
    if (we) words[at] <= d;
    q <= words[at];
  end
endmodule
module top(input logic clk, we, input logic [9:0] at, input logic [35:0] d, input logic [31:0] a, b,
           input logic signed [26:0] x, input logic signed [17:0] y,
           output logic [35:0] q, output logic [31:0] s, t, output logic signed [44:0] p);
  adder one(.clk, .a, .b, .s);
  adder two(.clk, .a(s), .b(d[31:0]), .s(t));
  memory store(.clk, .we, .at, .d, .q);
  always_ff @(posedge clk) p <= x * y;
endmodule
"""


@pytest.mark.skipif(shutil.which("yosys") is None, reason="Yosys is missing: apt install yosys")
def test_known_hardware_has_known_area(tmp_path: Path) -> None:
    (tmp_path / "rtl").mkdir()
    (tmp_path / "rtl/top.sv").write_text(DESIGN)

    def measure(folder: Path) -> None:
        (folder / "area.json").write_text(json.dumps(estimate.estimate(tmp_path, "top")))

    # Yosys says the same of the same design again.
    parts = [DESIGN, *tools(), *store.texts([Path(estimate.__file__), Path(synthesis.__file__), *LIBRARY])]
    found = json.loads((store.kept("area", parts, measure) / "area.json").read_text())
    total, modules = found["total"], found["modules"]
    assert modules["adder"]["uses"] == 2
    assert modules["adder"]["FF"] == 32
    assert 32 <= modules["adder"]["LUT"] <= 36
    assert (modules["memory"]["BRAM"], modules["memory"]["LUTRAM"]) == (1, 0)
    assert total["DSP"] == 1  # 27 x 18 bits fill exactly one
    assert total["BRAM"] == 1
    assert total["LUT"] == 2 * modules["adder"]["LUT"] + modules["memory"]["LUT"] + modules["top"]["LUT"]
    assert str(found["tool"]).startswith("Yosys 0.")


def test_cells_count_as_what_they_take_in_a_slice() -> None:
    cells = Counter(
        {"LUT6": 3, "SRL16E": 2, "RAM32M16": 1, "FDRE": 5, "FDSE": 1, "CARRY4": 2, "RAMB18E2": 3, "MUXF7": 9}
    )
    area = estimate.area_of(cells)
    assert (area["LUT"], area["LUTRAM"], area["FF"], area["CARRY"], area["BRAM"]) == (13, 10, 6, 8, 1.5)
    with pytest.raises(ToolError, match="RAM512X1S, whose area is not known"):
        estimate.area_of(Counter({"RAM512X1S": 1}))


def test_modules_keep_their_names() -> None:
    assert readable("$paramod$42215ecc5f04e209b8040411b49dda9a9b8302f7\\openhls_fifo") == "openhls_fifo"
    assert readable("$paramod\\openhls_control\\ADDRESS=s32'0111") == "openhls_control"
    assert readable("mark_rows_process") == "mark_rows_process"


def test_without_rtl_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no RTL of top"):
        estimate.estimate(tmp_path, "top")
