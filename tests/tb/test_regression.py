# SPDX-License-Identifier: Apache-2.0
"""The regression of the kernels' RTL with the reduced set of cases; `make sim` runs all of them."""

import json

import pytest

from rtl.kernels import find_tops
from tb import verified
from tb.__main__ import tops_of
from tb.build import simulation_of
from tb.run import run_top, simulate

SEED = 1
CASES = "every_case_gives_the_golden_result_in_the_stated_cycles"
MEMORY = "results_do_not_depend_on_the_memory"
# Simulated in every run of the tests: all their tests, or while there is a valid record of an earlier run one of them,
# which takes the least time of those with many jobs. Of the attention kernels this is the smallest: the same stages,
# without those of SparF. The others run if they have no valid record.
ALWAYS = {"argtopk": MEMORY, "attention_exact_g1": MEMORY, "gemv_g1": "", "page_filter": CASES, "softmax": CASES}
TOPS = [top.name for top in tops_of([])]


def has_passed(name: str, config: pytest.Config) -> bool:
    """Whether a valid record says so. Without `-m "not slow"`, as in `make test-full`, no record counts."""
    everything = "not slow" not in config.getoption("markexpr")
    return not everything and verified.problem(*find_tops(name)) == ""


# Two tests simulate softmax, in the same folder.
SOFTMAX = pytest.mark.xdist_group("tb-softmax")


@pytest.mark.parametrize("name", [pytest.param(name, marks=SOFTMAX if name == "softmax" else ()) for name in TOPS])
def test_a_kernel_passes_its_regression_or_has_passed_it(
    name: str, verilator: None, tmp_path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    (top,) = find_tops(name)
    if has_passed(name, pytestconfig) and ALWAYS.get(name) != "":
        if name in ALWAYS:
            result = simulate(simulation_of(top), SEED, small=True, only=ALWAYS[name])
            assert (result.failures, result.tests) == ({}, [ALWAYS[name]])
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
    assert ALWAYS.keys() < set(TOPS)
