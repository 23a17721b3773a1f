"""The table of plans beside measured steps."""

from types import SimpleNamespace

import pytest

import bench_plan
from bench_plan import CLOCKS, PAGE, SETTINGS, Setting, Time, compare, table
from kvdrive.kvcache.drive_rates import Line
from kvdrive.kvcache.xcache.measured import Measured
from kvdrive.perf.here import Here


def test_a_row_compares_each_clock(monkeypatch):
    attention = Measured(Line(0, 1e-6), Line(0, 0), Line(0, 2e-6), Line(0, 0), True)
    known = {clock: Here(Line(0.01, 0.002), attention, 8, "", "") for clock in CLOCKS}
    monkeypatch.setattr(bench_plan, "measured", lambda *arguments: (Time(wall=0.05, processor=0.08), 1))
    monkeypatch.setattr(bench_plan, "decoder_config", lambda model: SimpleNamespace(num_hidden_layers=4))
    row = compare(Setting("opt-125m", "emulator", 1000, 2, 0.5), None, known, None)
    predicted = 0.01 + 4 * (0.002 - 2 * 16e-6) + 4 * (1e-3 + 2e-3)
    assert row["wall_predicted_ms"] == pytest.approx(1e3 * predicted)
    assert row["wall_error"] == pytest.approx(predicted / 0.05 - 1)
    assert row["processor_error"] == pytest.approx(predicted / 0.08 - 1)
    text = table([row | {"wall_error": 0.1}, row | {"wall_error": -0.2}], 2)
    assert "| opt-125m | emulator | 1,000 | 2 | 0.5 | 50.0 |" in text
    assert "Within 15%: 1 of 2 by wall time, 0 by processor time" in text


def test_the_page_has_a_place_for_the_table():
    assert len(set(SETTINGS)) == 6
    assert "<!-- end -->" in PAGE.read_text().split("<!-- bench-plan -->")[1]
