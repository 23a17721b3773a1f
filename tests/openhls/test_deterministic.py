# SPDX-License-Identifier: Apache-2.0
"""The same C++ gives the same RTL, whatever order Python's sets have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rtl(seed: str, out: Path) -> dict[str, str]:
    command = [sys.executable, "-m", "openhls", "build", "hls/argtopk/argtopk.cpp", "--top", "argtopk", "-I", "hls"]
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": "sim"}
    subprocess.run([*command, "--out", str(out)], cwd=ROOT, env=environment, check=True, capture_output=True)
    return {path.name: path.read_text() for path in out.rglob("*.sv")}


@pytest.mark.parametrize("seed", ["6"])
def test_hash_seeds_do_not_change_the_rtl(seed: str, tmp_path: Path) -> None:
    first = rtl("0", tmp_path / "first")
    assert len(first) > 5
    assert rtl(seed, tmp_path / "second") == first
