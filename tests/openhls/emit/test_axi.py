# SPDX-License-Identifier: Apache-2.0
"""Memory ports as AXI4 masters: what they move, in which order, how fast."""

import random
import subprocess
from pathlib import Path

import pytest

from openhls.cosim.driver import build_simulation
from openhls.pipeline import write_design

SEED = 5
PAIR = ("gmem0", "gmem1")
REGISTERS = ("source0", "target0", "asked0", "given0", "elements0", "return")
FORMS = {
    "512, registers": ((512,), PAIR, REGISTERS, {}),
    "8, some registers": ((8,), ("gmem", "gmem"), ("source0", "elements0"), {}),
    "512 and 32 in one bundle": ((512, 32), ("gmem",) * 4, (), {"read_burst": 16, "write_burst": 4}),
    "three times 16 in two bundles": ((16, 16, 16), ("a", "a", "a", "b", "b", "b"), (), {"write_outstanding": 3}),
    "64, a burst at a time": ((64,), PAIR, (), {"read_outstanding": 1, "write_outstanding": 1}),
    "1024 without bursts": ((1024,), PAIR, (), {"read_burst": 1, "write_burst": 1}),
}


# The others have registers, several widths, shared bundles and limits of bursts too.
SLOW = ("512, registers", "three times 16 in two bundles", "1024 without bursts")


@pytest.mark.parametrize("form", [pytest.param(form, marks=pytest.mark.slow if form in SLOW else ()) for form in FORMS])
def test_any_list_of_requests_is_served_in_order(form: str, transfer, new_block, new_case, run_rtl) -> None:
    widths, bundles, registers, limits = FORMS[form]
    rng = random.Random(SEED)
    moves = [[transfer.random_move(rng, width) for width in widths] for _ in range(40)]
    cases = [transfer.case_of(new_case, widths, each) for each in moves]
    ran = run_rtl(transfer.program(new_block, widths, bundles, registers, **limits), cases)
    assert (ran.stalled.problem, ran.free.problem, ran.reset.problem) == ("", "", "")
    assert ran.free.words > 40 * 100


@pytest.mark.parametrize("width", [512, 16])
def test_a_long_run_leaves_no_bubble(width: int, transfer, new_block, new_case, run_rtl) -> None:
    """97 % of the cycles carry an element, though the latency of memory, 100 cycles, comes on top twice."""
    count, rng = 16384, random.Random(SEED)
    source, target = (rng.randbytes(count * width // 8) for _ in range(2))
    rows = [(first, 1, 64) for first in range(0, count, 64)]
    run = [(0, 1, count)]
    cases = [transfer.case_of(new_case, (width,), [(some, some, source, target)]) for some in (run, rows)]
    ran = run_rtl(transfer.program(new_block, (width,), PAIR, REGISTERS), cases)
    assert ran.free.problem == ""
    assert max(ran.free.cycles) <= count / 0.97


def test_a_driver_sees_errors_restarts_and_registers(transfer, new_block, tools: None, tmp_path: Path) -> None:
    design = write_design(transfer.program(new_block, (512,), PAIR, REGISTERS), "transfer", tmp_path)
    program = build_simulation(design, Path(__file__).with_name("jobs.cpp").read_text())
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("0 failures\n", "", 0)
