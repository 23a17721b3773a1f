# SPDX-License-Identifier: Apache-2.0
"""The command line tells torch's threads to sleep soon, before torch is imported."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from kvdrive.cli import main
before = "torch" in sys.modules
sys.argv = ["kvdrive", "--help"]
try:
    main.main()
except SystemExit:
    pass
sys.stderr.write(f"{before} {os.environ['GOMP_SPINCOUNT']}")
"""


@pytest.mark.parametrize(
    ("given", "kept"), [({}, "10000"), pytest.param({"GOMP_SPINCOUNT": "7"}, "7", marks=pytest.mark.slow)]
)
def test_threads_of_torch_sleep_soon_unless_the_user_says_otherwise(given: dict[str, str], kept: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"} | given
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == f"False {kept}"
