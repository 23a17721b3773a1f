"""The table of plans beside measured steps."""

from functools import partial

import pytest

from bench.decode.plan import CLOCKS, CONFIGS, Round, Setting, Time, compare, measured, table
from kvdrive.kvcache.drive_rates import Line
from kvdrive.kvcache.xcache.measured import Measured
from kvdrive.perf.here import Here, sample
from kvdrive.targets.opening import DriveOptions


def test_a_row_compares_medians_by_each_clock():
    attention = Measured(Line(0, 1e-6), Line(0, 0), Line(0, 2e-6), Line(0, 0), True)
    rounds = [
        Round(Time(wall, 0.08, 5e6), {clock: Here(Line(fixed, 0.002), attention, 8, "", "") for clock in CLOCKS})
        for wall, fixed in ((0.05, 0.01), (0.09, 0.5), (0.01, 0.0))
    ]
    row = compare(Setting("opt-125m", "emulator", 1000, 2, 0.5), 4, rounds, 1)
    predicted = 0.01 + 4 * (0.002 - 2 * 16e-6) + 4 * (1e-3 + 2e-3)
    assert row["wall_predicted_ms"] == pytest.approx(1e3 * predicted)
    assert row["wall_error"] == pytest.approx(predicted / 0.05 - 1)
    assert row["processor_error"] == pytest.approx(predicted / 0.08 - 1)
    assert row["wall_rounds"][1][0] == pytest.approx(90)
    text = table([row | {"wall_error": 0.1}, row | {"wall_error": -0.2}], 3).text()
    assert "| opt-125m | emulator | 1,000 | 2 | 0.5 | 50.0 |" in text
    assert "Within 15%: 1 of 2 by wall time, 0 by processor time" in text
    assert "The cpu target read 5 MB a step around the page cache." in text


@pytest.mark.parametrize("target", ["emulator", pytest.param("cpu", marks=pytest.mark.slow)])
def test_rounds_measure_rates_and_steps(tmp_path, target):
    """Times say nothing here; a step of the cpu target reads its K and V from the disk."""
    config = CONFIGS["small"]
    drives = DriveOptions("fast", "", 1, 1 << 26, tmp_path, target=target, format=True)
    rounds, as_inputs = measured(
        Setting("small", target, 4096, 1, 0.0), sample(config, 2), partial(sample, config), drives, 1
    )
    assert (len(rounds), as_inputs) == (1, 0)
    assert set(rounds[0].known) == set(CLOCKS)
    assert rounds[0].step.disk_bytes == (4 * 2 * 32 * 4096 if target == "cpu" else 0)
