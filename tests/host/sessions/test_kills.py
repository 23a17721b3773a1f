"""SIGKILL at every step: nothing that was acknowledged is lost, and nothing wrong is served."""

import subprocess
import sys
from pathlib import Path

import pytest
import small_models

FOLDERS = [str(Path(file).parent) for file in (__file__, small_models.__file__)]


@pytest.mark.parametrize("kills", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_killed_processes_lose_nothing(tmp_path, kills):
    paths = f"import sys; sys.path[:0] = {FOLDERS!r}"
    script = f"{paths}; import kills, pathlib; kills.main(pathlib.Path({str(tmp_path)!r}), {kills}, 1)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{kills} kills in" in done.stdout
