# SPDX-License-Identifier: Apache-2.0
"""The fuzzers build and find nothing in a bounded number of inputs, under sanitizers."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/fuzz_drive.py"


@pytest.mark.slow
@pytest.mark.parametrize("surface", ["commands", "rings"])
def test_a_surface_takes_any_input(surface):
    command = [sys.executable, SCRIPT, "--surface", surface, "--inputs", "20000"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "20000 inputs, no harm" in result.stdout
