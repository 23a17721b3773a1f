# SPDX-License-Identifier: Apache-2.0
"""The fuzzers build and find nothing in a bounded number of inputs, under sanitizers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/fuzz_drive.py"
INPUTS = {
    "commands": (60, 600),
    "files": (20, 240),
    "pdus": (200, 2400),
    "rings": (150, 1800),
}  # in `make test`, in all
RUNS = [
    pytest.param(surface, inputs, marks=pytest.mark.slow if number else ())
    for number in (0, 1)
    for surface, inputs in ((surface, both[number]) for surface, both in INPUTS.items())
]


@pytest.mark.xdist_group("fuzzers")  # one build
@pytest.mark.parametrize(("surface", "inputs"), RUNS)
def test_a_surface_takes_any_input(surface, inputs, tmp_path: Path):
    command = [sys.executable, SCRIPT, "--surface", surface, "--inputs", str(inputs), "--corpus", str(tmp_path)]
    own = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # they bring their sanitizers
    result = subprocess.run(command, capture_output=True, text=True, env=own)
    assert result.returncode == 0, result.stdout + result.stderr
    ran, edges, kept = map(int, re.findall(r"(\d+) (?:inputs|edges)", result.stdout))
    assert result.stdout.startswith(f"{surface}: ")
    assert result.stdout.endswith("no harm\n")
    assert ran >= inputs
    assert edges > 1000  # the drive is part of what coverage is measured of
    assert kept > 5  # inputs that reached new code; without coverage feedback none are kept
