# SPDX-License-Identifier: Apache-2.0
"""Nests of loops in hardware: one pipeline that does not drain at the end of a row."""

from pathlib import Path

import pytest

from openhls.cosim import cosimulate, parse_choice
from openhls.emit.design import Design
from openhls.ir import Program
from openhls.pipeline import compile_program, write_design

SOURCE = Path(__file__).parents[1] / "programs/nests.cpp"
TAKES_TURNS = """
#include <ap_int.h>
#include <hls_stream.h>
void turns(hls::stream<ap_uint<16>>& in, hls::stream<ap_uint<16>>& out, int rows) {
  ap_uint<16> memory[16];
clear:
  for (int c = 0; c < 16; ++c) {
    memory[c] = 0;
  }
each_row:
  for (int r = 0; r < rows; ++r) {
  add:
    for (int c = 0; c < 16; ++c) {
#pragma HLS PIPELINE II = 1
      memory[c] = memory[c] + in.read();
    }
  }
send:
  for (int c = 0; c < 16; ++c) {
    out.write(memory[c]);
  }
}
"""


@pytest.fixture(scope="session")
def program() -> Program:
    return compile_program(SOURCE, "nests")


@pytest.fixture(scope="session")
def design(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Design:
    return write_design(program, "nests", tmp_path_factory.mktemp("nests"))


def test_each_nest_is_one_loop_with_the_interval_of_its_inner_one(design: Design) -> None:
    loops = {region.name: region.interval for region in design.regions if region.interval is not None}
    assert loops == {"sum_row": 1, "triangle": 1, "points": 1}


def test_rows_cost_no_cycles_of_their_own(program: Program, design: Design, tools: None) -> None:
    """A column more costs a cycle per row and nest. A row that is skipped costs one; planes have 2, 3 and 4 points."""

    def cycles(rows: int, columns: int) -> int:
        choices = dict(parse_choice(text) for text in (f"rows={rows}", f"columns={columns}"))
        found = cosimulate(design, SOURCE, program.function, cases=2, seed=1, choices=choices)
        assert found.problem == ""
        return found.free.cycles[0]

    assert cycles(8, 40) - cycles(8, 39) == 8 + 8
    assert cycles(4, 0) - cycles(3, 0) == 1 + 1 + 2 + 3 + 4


def test_the_nests_are_the_same_in_hardware(program: Program, design: Design, tools: None) -> None:
    choices = dict(parse_choice(text) for text in ("rows=0:6", "columns=0:9"))
    found = cosimulate(design, SOURCE, program.function, cases=30, seed=1, choices=choices)
    assert found.problem == ""


SECOND = "      seen[c] = seen[c] + 1;\n"


@pytest.mark.parametrize(("second", "trips"), [("", None), (SECOND, (16, 16))], ids=["one memory", "two"])
def test_a_nest_whose_rows_meet_in_two_memories_stays(
    second: str, trips: tuple[int, int] | None, tmp_path: Path
) -> None:
    """What the last row has stored in one memory is handed on; two memories would make the interval longer."""
    add = "      memory[c] = memory[c] + in.read();\n"
    assert add in TAKES_TURNS
    source = tmp_path / "turns.cpp"
    text = TAKES_TURNS.replace(add, add + second)
    source.write_text(text.replace("memory[16];\n", "memory[16];\n  static ap_uint<16> seen[16];\n"))
    design = write_design(compile_program(source, "turns"), "turns", tmp_path / "out")
    loop = next(region for region in design.regions if region.name == "add")
    assert loop.interval == 1
    assert loop.trips == trips
