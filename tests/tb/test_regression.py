# SPDX-License-Identifier: Apache-2.0
"""The regression of the kernels' RTL with the reduced set of cases; `make sim` runs all of them."""

import json

import pytest

from rtl.kernels import find_tops
from tb.__main__ import tops_of
from tb.run import run_top

SEED = 1
# The kernel over 4 bits and the one with SparF run the same stages.
SLOW = ("attention_codes_g1", "attention_exact_g1")
TOPS = [pytest.param(top.name, marks=pytest.mark.slow if top.name in SLOW else ()) for top in tops_of([])]


@pytest.mark.xdist_group("tb")
@pytest.mark.parametrize("name", TOPS)
def test_a_kernel_passes_its_regression(name: str, verilator: None) -> None:
    (top,) = find_tops(name)
    result = run_top(top, SEED, small=True)
    assert result.failures == {}
    assert len(result.tests) >= 5
    assert all(0 <= fifo["high_water"] <= fifo["depth"] for fifo in result.report["fifos"])
    assert any(fifo["high_water"] == fifo["depth"] for fifo in result.report["fifos"])
    assert json.loads((result.log.parent / "report.json").read_text())["seed"] == SEED
    text = (result.log.parent / "report.md").read_text()
    assert "| FIFO | depth | high water |" in text
    assert "| group | bin | hits |" in text
