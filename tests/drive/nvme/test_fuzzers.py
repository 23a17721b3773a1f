# SPDX-License-Identifier: Apache-2.0
"""The fuzzers build and find nothing in a bounded number of inputs, under sanitizers."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/fuzz_drive.py"


@pytest.mark.xdist_group("fuzzers")  # one build
@pytest.mark.parametrize(
    ("surface", "inputs"), [("commands", 20000), ("files", 500), ("pdus", 10000), ("rings", 20000)]
)
def test_a_surface_takes_any_input(surface, inputs):
    command = [sys.executable, SCRIPT, "--surface", surface, "--inputs", str(inputs)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"{surface}: {inputs} inputs, no harm" in result.stdout
