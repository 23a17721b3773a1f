"""SIGKILL at every step: nothing that was acknowledged is lost, and nothing wrong is served."""

import sys
from pathlib import Path

import forked
import pytest
import small_models

FOLDERS = [str(Path(file).parent) for file in (__file__, small_models.__file__)]


@pytest.mark.parametrize(
    ("kills", "active", "name"),
    [
        (8, "drive", "llama"),
        (6, "memory", "llama"),  # saves run in the background
        (6, "drive", "qwen3-next"),
        pytest.param(500, "drive", "llama", marks=pytest.mark.slow),
        pytest.param(500, "memory", "llama", marks=pytest.mark.slow),
        pytest.param(500, "drive", "qwen3-next", marks=pytest.mark.slow),
        pytest.param(300, "drive", "gemma3", marks=pytest.mark.slow),
    ],
)
def test_killed_processes_lose_nothing(tmp_path, kills, active, name):
    paths = f"import sys; sys.path[:0] = {FOLDERS!r}"
    script = (
        f"{paths}; import kills, pathlib; kills.main(pathlib.Path({str(tmp_path)!r}), {kills}, 1, {active!r}, {name!r})"
    )
    done = forked.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{kills} kills in" in done.stdout
