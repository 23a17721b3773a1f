# SPDX-License-Identifier: Apache-2.0
"""The regressions that run whatever has changed: a kernel of each kind."""

import pytest
from regressions import ALWAYS, SEED, TOPS, check

from rtl.kernels import find_tops
from tb.run import run_top

# Two tests simulate softmax, in the same folder.
SOFTMAX = pytest.mark.xdist_group("tb-softmax")


@pytest.mark.parametrize("name", [pytest.param(name, marks=SOFTMAX if name == "softmax" else ()) for name in ALWAYS])
def test_a_kernel_passes_its_regression(name: str, verilator: None, pytestconfig: pytest.Config) -> None:
    check(name, pytestconfig)


@SOFTMAX
@pytest.mark.slow
def test_softmax_passes_its_regression_in_all_cases(verilator: None) -> None:
    (top,) = find_tops("softmax")
    assert run_top(top, SEED).failures == {}


def test_every_top_that_is_always_simulated_exists() -> None:
    assert ALWAYS.keys() < set(TOPS)
