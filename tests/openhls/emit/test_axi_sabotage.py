# SPDX-License-Identifier: Apache-2.0
"""Faults put into the engines and registers: the tests of test_axi.py must notice each of them.

All faults are in one model. `sabotage` is 0 until the simulation is told the number of one.
"""

import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openhls.cosim import driver, simulate
from openhls.pipeline import write_design

SEED = 5
WIDTHS, BUNDLES = (16, 16), ("a", "a", "b", "b")
REGISTERS = ("source0", "target0", "asked0", "given0", "elements0", "return")

# File, text, and what to put in its place: @ is true while the fault is on.
FAULTS = {
    "a run ends one element late": ("axi_split", "]) + elements - 1'b1;", "]) + elements - (@ ? 33'd0 : 33'd1);"),
    "bursts end anywhere": (
        "axi_split",
        "33'(BURST) - 33'((at & IN_CHUNK) >> WORD)",
        "33'(BURST) - (@ ? 33'd0 : 33'((at & IN_CHUNK) >> WORD))",
    ),
    "strides are positive": (
        "axi_split",
        "64'($signed(request_data[95:64]))",
        "(@ ? 64'(request_data[95:64]) : 64'($signed(request_data[95:64])))",
    ),
    "a run begins in the first lane": ("axi_split", "assign first_lane = lane;", "assign first_lane = @ ? '0 : lane;"),
    "reads without room": ("axi_read", "room >= ROOM'(BURST)", "room >= (@ ? ROOM'(1) : ROOM'(BURST))"),
    "lanes of the burst before": ("axi_read", "lane = fresh ? first", "lane = fresh && !(@) ? first"),
    "the last lane is full": ("axi_read", "(stored_last ? last", "(stored_last && !(@) ? last"),
    "all bytes are written": ("axi_write", "8{stored_lanes[i]}}", "8{stored_lanes[i] || @}}"),
    "lanes stay": ("axi_write", "kept_lanes <= ends ? '0", "kept_lanes <= ends && !(@) ? '0"),
    "an answer for each burst": ("axi_write", "32'(bvalid && answers_final)", "32'(bvalid && (answers_final || @))"),
    "every word is the last": (
        "axi_write",
        "assign last_word = beat == length;",
        "assign last_word = beat == length || @;",
    ),
    "data out of turn": ("axi_share_write", "in_wdata[turn*BUS+:BUS]", "in_wdata[(@ ? grant : turn)*BUS+:BUS]"),
    "all senders at once": (
        "axi_arbiter",
        "COUNT'(granted) << grant",
        "(@ ? {COUNT{granted}} : COUNT'(granted) << grant)",
    ),
    "answers for the first": ("axi_share_write", "COUNT'(bvalid) << bid", "COUNT'(bvalid) << (@ ? '0 : bid)"),
    "a full buffer takes more": ("block_fifo", "fetch = held != '0 &&", "fetch = (held != '0 || @) &&"),
    "errors stay": ("axi_write", "(failed && !clear)", "(failed && (!clear || @))"),
    "errors of reads are lost": ("axi_read", "(rvalid && rresp[1])", "(rvalid && rresp[1] && !(@))"),
    "reading clears nothing": (
        "control",
        "was_done && !(read && wanted == CONTROL)",
        "was_done && (!(read && wanted == CONTROL) || @)",
    ),
    "no restart": (
        "control",
        "else if (ready) start <= auto_restart;",
        "else if (ready) start <= auto_restart && !(@);",
    ),
    "the end wins over a start": (
        "control",
        "write_data[0]) start <= 1'b1;",
        "write_data[0] && !(ready && @)) start <= 1'b1;",
    ),
    "data is not held": ("axi_lite", "if (!has_data) begin", "if (!has_data || @) begin"),
    "strobes are ignored": ("axi_lite", "write_strobe <= wstrb;", "write_strobe <= @ ? '1 : wstrb;"),
}
NUMBERS = {fault: number for number, fault in enumerate(FAULTS, 1)}
FIRST_OF_REGISTERS = "errors stay"
MOVES = [fault for fault in FAULTS if NUMBERS[fault] < NUMBERS[FIRST_OF_REGISTERS]]
JOBS = [fault for fault in FAULTS if fault not in MOVES]
DECLARE = """
  int sabotage = 0;
  initial void'($value$plusargs("sabotage=%d", sabotage));
"""


@contextmanager
def faulty_library(folder: Path) -> Iterator[None]:
    """The library with all faults in it."""
    texts = {source.name: source.read_text() for source in simulate.LIBRARY}
    for fault, (module, text, instead) in FAULTS.items():
        name = f"openhls_{module}.sv"
        assert texts[name].count(text) == 1, f"{name} has no one place with {text}"
        texts[name] = texts[name].replace(text, instead.replace("@", f"sabotage == {NUMBERS[fault]}"))
    for name in {f"openhls_{module}.sv" for module, _, _ in FAULTS.values()}:
        ports, end, body = texts[name].partition("\n);\n")
        texts[name] = f"{ports}{end}{DECLARE}{body}"
    for name, text in texts.items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "LIBRARY", [folder / name for name in texts])
        patch.setattr(simulate, "WAIVED", (*simulate.WAIVED, "lint"))
        yield


@pytest.fixture(scope="session")
def moves(transfer, new_block, new_case, write_record, tools: None, tmp_path_factory) -> tuple[Path, Path]:
    """A program that moves elements, and its cases."""
    folder = tmp_path_factory.mktemp("moves")
    rng = random.Random(SEED)
    program = transfer.program(new_block, WIDTHS, BUNDLES)
    moves = [[transfer.random_move(rng, width) for width in WIDTHS] for _ in range(15)]
    path = write_record(folder, program, [transfer.case_of(new_case, WIDTHS, each) for each in moves])
    with faulty_library(folder):
        return driver.build_simulation(write_design(program, "transfer", folder)), path


@pytest.fixture(scope="session")
def jobs(transfer, new_block, tools: None, tmp_path_factory) -> Path:
    """The program of jobs.cpp."""
    folder = tmp_path_factory.mktemp("jobs")
    design = write_design(transfer.program(new_block, (512,), ("gmem0", "gmem1"), REGISTERS), "transfer", folder)
    with faulty_library(folder):
        return driver.build_simulation(design, Path(__file__).with_name("jobs.cpp").read_text())


def moved(moves: tuple[Path, Path], number: int) -> str:
    program, record = moves
    return simulate.run_cases(program, record, mode="stalls", patience=3000, plusargs=[f"+sabotage={number}"]).problem


def driven(program: Path, number: int) -> int:
    return subprocess.run([program, f"+sabotage={number}"], capture_output=True, check=False).returncode


@pytest.mark.parametrize("fault", MOVES)
def test_a_fault_of_an_engine_is_seen(fault: str, moves: tuple[Path, Path]) -> None:
    assert moved(moves, NUMBERS[fault]) != ""


@pytest.mark.parametrize("fault", JOBS)
def test_a_fault_of_the_registers_is_seen(fault: str, jobs: Path) -> None:
    assert driven(jobs, NUMBERS[fault]) != 0


def test_without_a_fault_the_same_programs_pass(moves: tuple[Path, Path], jobs: Path) -> None:
    assert moved(moves, 0) == ""
    assert driven(jobs, 0) == 0
