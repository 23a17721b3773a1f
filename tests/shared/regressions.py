"""The regression of a kernel's RTL with the reduced set of cases, or the record of one; `make sim` runs all cases."""

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


def check(name: str, config: pytest.Config) -> None:
    """Simulate a kernel, as far as it must be."""
    (top,) = find_tops(name)
    if has_passed(name, config) and ALWAYS.get(name) != "":
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
