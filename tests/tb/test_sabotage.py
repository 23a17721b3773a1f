# SPDX-License-Identifier: Apache-2.0
"""Faults in a copy of page_filter's RTL; the test bench must see each one, and say what it is."""

from pathlib import Path

import pytest

from rtl.build import build
from rtl.kernels import find_tops
from tb.build import Simulation, verilate
from tb.run import simulate

CASES = "every_case_gives_the_golden_result_in_the_stated_cycles"
STALLS = "every_case_gives_the_golden_result_under_stalls"
RESET = "a_job_after_a_reset_in_the_middle_of_another_is_as_any"

# Number of the fault, test that sees it, what it says.
FAULTS = {
    "a data bit is wrong": (1, CASES, "expected (1 of"),
    "valid falls before a word is taken": (2, STALLS, "filtered: TVALID fell before the word was taken"),
    "input is taken in every other cycle": (3, CASES, "jobs are not within 2 % of [cycles]"),
    "a FIFO that loses its places": (4, CASES, "marked_buffer.queue: its writer waits, 0 of 10 words"),
    "state that a reset leaves": (5, RESET, "ap_ctrl is 0x0 after a reset"),
    "data that changes before it is taken": (6, STALLS, "filtered: TDATA changed before it was taken"),
}
# The others show the same kinds: a wrong word, a handshake that is broken under stalls, a rate, a wrong state.
SLOW = ("a FIFO that loses its places", "data that changes before it is taken")
# File, and what is put in place of what. `sabotage` is 0 until the simulation is told otherwise.
DECLARE = '  int sabotage = 0;\n  initial void\'($value$plusargs("sabotage=%d", sabotage));\n'
EDITS = {
    "page_filter.sv": {
        ");\n  logic begin_job;": f""");
{DECLARE}
  logic turn = 1'b0;
  logic filtered_offered, pages_taken;
  logic [527:0] filtered_word;
  always_ff @(posedge ap_clk) turn <= !turn;
  assign filtered_tdata = filtered_word ^ 528'(sabotage == 1 && filtered_word[7:0] == 8'd77)
      ^ 528'(sabotage == 6 && turn);
  assign filtered_tvalid = filtered_offered && (sabotage != 2 || turn);
  assign pages_tready = pages_taken && (sabotage != 3 || turn);
  logic begin_job;""",
        ".filtered_data(filtered_tdata)": ".filtered_data(filtered_word)",
        ".filtered_valid(filtered_tvalid)": ".filtered_valid(filtered_offered)",
        ".filtered_ready(filtered_tready)": ".filtered_ready(filtered_tready && (sabotage != 2 || turn))",
        ".pages_ready(pages_tready)": ".pages_ready(pages_taken)",
        ".pages_valid(pages_tvalid)": ".pages_valid(pages_tvalid && (sabotage != 3 || turn))",
        "running <= 1'd0;": "if (sabotage != 5) running <= 1'd0;",
    },
    "openhls_credit_fifo.sv": {
        "  logic pop;": f"  logic pop;\n{DECLARE}",
        "COUNT'(pop)": "COUNT'(pop && !(sabotage == 4 && WIDTH == 514))",
    },
}


@pytest.fixture(scope="module")
def faulty(verilator: None, tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    """One binary with all faults in it, each of which waits to be chosen."""
    (top,) = find_tops("page_filter")
    folder = tmp_path_factory.mktemp("sabotage")
    build(top, folder)
    simulation = Simulation(top, folder / top.name, waves=False)
    rtl = simulation.folder / "rtl"
    for name, edits in EDITS.items():
        text = (rtl / name).read_text()
        for old, new in edits.items():
            assert text.count(old) == 1, f"{name} has no one place with {old}"
            text = text.replace(old, new)
        (rtl / name).write_text(text)
    verilate(simulation, sorted(rtl.glob("*.sv")))
    return simulation


@pytest.mark.xdist_group("tb-sabotage")
@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=pytest.mark.slow if fault in SLOW else ()) for fault in FAULTS]
)
def test_a_fault_is_seen_and_named(fault: str, faulty: Simulation) -> None:
    number, test, text = FAULTS[fault]
    result = simulate(faulty, 1, small=True, only=test, plusargs=[f"+sabotage={number}"])
    assert text in result.failures.get(test, "passed")


@pytest.mark.xdist_group("tb-sabotage")
def test_without_a_fault_the_same_binary_passes(faulty: Simulation) -> None:
    assert simulate(faulty, 1, small=True, only=STALLS).failures == {}


def test_a_simulation_that_crashes_has_failed(tmp_path: Path, verilator: None) -> None:
    (top,) = find_tops("page_filter")
    simulation = Simulation(top, tmp_path, waves=False)
    simulation.binary.mkdir()
    program = simulation.binary / top.name
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    assert simulate(simulation, 1, small=True).failures == {"simulation": "ended without results"}
