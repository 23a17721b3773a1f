# SPDX-License-Identifier: Apache-2.0
"""Faults put into the engines and registers, one at a time: the tests of test_axi.py must notice each of them."""

import random
import subprocess
from pathlib import Path

import pytest

from openhls.backend import driver, simulate
from openhls.backend.design import write_design

SEED = 5
WIDTHS, BUNDLES = (16, 16), ("a", "a", "b", "b")
REGISTERS = ("source0", "target0", "asked0", "given0", "elements0", "return")

# file, text, what to put in its place
MOVES = {
    "a run ends one element late": ("axi_split", "]) + elements - 1'b1;", "]) + elements;"),
    "bursts end anywhere": ("axi_split", "33'(BURST) - 33'((at & IN_CHUNK) >> WORD)", "33'(BURST)"),
    "strides are positive": ("axi_split", "64'($signed(request_data[95:64]))", "64'(request_data[95:64])"),
    "a run begins in the first lane": ("axi_split", "assign first_lane = lane;", "assign first_lane = '0;"),
    "reads without room": ("axi_read", "room >= ROOM'(BURST)", "room >= ROOM'(1)"),
    "lanes of the burst before": ("axi_read", "lane = fresh ? first : following", "lane = following"),
    "the last lane is full": ("axi_read", "stored_last ? last : LANE'(LANES - 1)", "LANE'(LANES - 1)"),
    "all bytes are written": ("axi_write", "{WIDTH / 8{stored_lanes[i]}}", "'1"),
    "lanes stay": ("axi_write", "kept_lanes <= ends ? '0 : lanes;", "kept_lanes <= lanes;"),
    "an answer for each burst": ("axi_write", "32'(bvalid && answers_final)", "32'(bvalid)"),
    "every word is the last": ("axi_write", "assign last_word = beat == length;", "assign last_word = 1'b1;"),
    "data out of turn": ("axi_share_write", "in_wdata[turn*BUS+:BUS]", "in_wdata[grant*BUS+:BUS]"),
    "all senders at once": ("axi_arbiter", "COUNT'(granted) << grant", "{COUNT{granted}}"),
    "answers for the first": ("axi_share_write", "COUNT'(bvalid) << bid", "COUNT'(bvalid)"),
    "a full buffer takes more": ("block_fifo", "fetch = held != '0 &&", "fetch ="),
}
JOBS = {
    "errors stay": ("axi_write", "(failed && !clear)", "failed"),
    "errors of reads are lost": ("axi_read", "rvalid && rresp[1]", "1'b0"),
    "reading clears nothing": ("control", "was_done && !(read && wanted == CONTROL)", "was_done"),
    "no restart": ("control", "else if (ready) start <= auto_restart;", "else if (ready) start <= 1'b0;"),
    "the end wins over a start": (
        "control",
        "write_data[0]) start <= 1'b1;",
        "write_data[0] && !ready) start <= 1'b1;",
    ),
    "data is not held": ("axi_lite", "if (!has_data) begin", "begin"),
    "strobes are ignored": ("axi_lite", "write_strobe <= wstrb;", "write_strobe <= '1;"),
}


@pytest.fixture
def break_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Puts another text into one module of the library, for this test."""

    def change(module: str, text: str, instead: str) -> None:
        files = []
        for source in simulate.LIBRARY:
            files.append(tmp_path / source.name)
            whole = source.read_text()
            if source.stem == f"openhls_{module}":
                assert whole.count(text) == 1
                whole = whole.replace(text, instead)
            files[-1].write_text(whole)
        monkeypatch.setattr(simulate, "LIBRARY", files)
        monkeypatch.setattr(simulate, "WAIVED", (*simulate.WAIVED, "lint"))

    return change


@pytest.mark.parametrize("fault", MOVES)
def test_a_fault_of_an_engine_is_seen(
    fault: str, break_library, transfer, new_block, new_case, write_record, tools: None, tmp_path: Path
) -> None:
    break_library(*MOVES[fault])
    rng = random.Random(SEED)
    program = transfer.program(new_block, WIDTHS, BUNDLES)
    moves = [[transfer.random_move(rng, width) for width in WIDTHS] for _ in range(15)]
    path = write_record(program, [transfer.case_of(new_case, WIDTHS, each) for each in moves])
    model = driver.build_simulation(write_design(program, "transfer", tmp_path))
    assert simulate.run_cases(model, path, mode="stalls", patience=3000).problem


@pytest.mark.parametrize("fault", JOBS)
def test_a_fault_of_the_registers_is_seen(
    fault: str, break_library, transfer, new_block, tools: None, tmp_path: Path
) -> None:
    break_library(*JOBS[fault])
    design = write_design(transfer.program(new_block, (512,), ("gmem0", "gmem1"), REGISTERS), "transfer", tmp_path)
    program = driver.build_simulation(design, Path(__file__).with_name("jobs.cpp").read_text())
    assert subprocess.run([program], capture_output=True, check=False).returncode != 0
