"""The benchmark of the plan: every setting is calibrated, filled and measured; predictions follow from calibrations."""

import sys

import pytest
from transformers import LlamaConfig

import bench_plan
from bench_plan import Calibration, Setting
from kvdrive.kvcache.xcache.measured import Line, Measured


def test_a_prediction_adds_what_the_context_takes_to_a_short_step():
    rates = Measured(Line(1, 2), Line(3, 4), Line(5, 6), Line(7, 8), shared=True)
    known = Calibration(rates, {2: 100.0}, layers=3)
    short = 2 * (1 + 2 * 16)
    assert known.predicted(Setting("", "", 1000, 2, 0.0), 0) == 100 + 3 * (2 * (1 + 2 * 1000) - short)
    rebuilt = (3 + 5 + 7) + (4 + 6 + 8) * 1000
    assert known.predicted(Setting("", "", 1000, 2, 0.5), 1) == 100 + 3 * (1 + 2 * 1000 + rebuilt - short)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_settings_are_measured_with_filled_caches(tmp_path, monkeypatch, capsys, share):
    small = LlamaConfig(
        vocab_size=100, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    monkeypatch.setattr(bench_plan, "CONFIGS", {"small": small})
    monkeypatch.setattr(bench_plan, "SETTINGS", (Setting("small", "emulator", 300, 2, share),))
    monkeypatch.setattr(bench_plan, "LONG", 512)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["bench_plan.py", "--threads", "1"])
    bench_plan.main()
    assert f"| small | emulator | 300 | 2 | {share:g} |" in capsys.readouterr().out
