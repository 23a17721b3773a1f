"""Histograms of the radix select count exactly although their memory lags behind."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("csim")


def test_counts_are_exact_up_to_the_promised_lag_and_not_beyond(program: Callable[..., Path]) -> None:
    done = subprocess.run([program("histogram")], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["0 exact", "1 exact", "2 exact", "3 exact", "4 wrong"]
