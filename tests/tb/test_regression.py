# SPDX-License-Identifier: Apache-2.0
"""The regression of the kernels' RTL with the reduced set of cases; `make sim` runs all of them."""

import json

import pytest

from rtl.kernels import find_tops
from tb import verified
from tb.__main__ import tops_of
from tb.run import run_top

SEED = 1
# Simulated in every run of the tests. Of the attention kernels this is the one that takes the least time: the same
# stages, without those of SparF. The others run if they have no valid record of an earlier run.
ALWAYS = ("argtopk", "attention_exact_g1", "gemv_g1", "page_filter", "softmax")
TOPS = [top.name for top in tops_of([])]


def needs_a_run(name: str, config: pytest.Config) -> bool:
    """Without `-m "not slow"`, as in `make test-full`, every top does."""
    everything = "not slow" not in config.getoption("markexpr")
    return everything or name in ALWAYS or verified.problem(*find_tops(name)) != ""


# Two tests simulate softmax, in the same folder.
SOFTMAX = pytest.mark.xdist_group("tb-softmax")


@pytest.mark.parametrize("name", [pytest.param(name, marks=SOFTMAX if name == "softmax" else ()) for name in TOPS])
def test_a_kernel_passes_its_regression_or_has_passed_it(
    name: str, verilator: None, tmp_path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    (top,) = find_tops(name)
    if not needs_a_run(name, pytestconfig):
        return
    result = run_top(top, SEED, small=True)
    assert result.failures == {}
    assert len(result.tests) >= 5
    assert all(0 <= fifo["high_water"] <= fifo["depth"] for fifo in result.report["fifos"])
    assert any(fifo["high_water"] == fifo["depth"] for fifo in result.report["fifos"])
    assert json.loads((result.log.parent / "report.json").read_text())["seed"] == SEED
    text = (result.log.parent / "report.md").read_text()
    assert "| FIFO | depth | high water |" in text
    assert "| group | bin | hits |" in text
    assert f"sim/tb/{top.kernel}/scoreboard.py" in result.report["files"]
    assert f"hls/{top.description.parent.name}/kernel.toml" in result.report["files"]


@SOFTMAX
@pytest.mark.slow
def test_softmax_passes_its_regression_in_all_cases(verilator: None) -> None:
    (top,) = find_tops("softmax")
    assert run_top(top, SEED).failures == {}


def test_every_top_that_is_always_simulated_exists() -> None:
    assert set(ALWAYS) < set(TOPS)
