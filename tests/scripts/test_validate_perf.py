"""The performance model predicts the emulator's steps: device time is the same on every machine."""

import pytest

import validate_perf
from validate_perf import BOUND, CONTEXTS, Outcome, Setting, Timed, from_known, line


def test_two_points_predict_a_third():
    assert line([Timed(100, 2.0), Timed(300, 3.0)])(500) == pytest.approx(4.0)
    times = {Setting("t", "p", "exact", 1, tokens): Timed(tokens, 1 + tokens / 1024) for tokens in CONTEXTS}
    assert [one.setting.tokens for one in from_known(times)] == [8192, 16384, 65536]
    assert all(one.error == pytest.approx(0) for one in from_known(times))


def test_a_page_has_every_setting():
    outcomes = [Outcome(Setting("emulator", "smartssd", "exact", 1, tokens), 1.1, 1.0) for tokens in CONTEXTS]
    text = validate_perf.page(outcomes)
    assert "emulator: 5 of 5 settings within 15 %, median 10.0 %, largest 10.0 %." in text
    assert "| emulator | smartssd | exact | in runs | 1 | 4K +10.0 %, 8K +10.0 %," in text


def test_steps_of_the_emulator_are_predicted(tmp_path):
    outcomes = validate_perf.emulator(tmp_path, CONTEXTS[:-1])
    assert len(outcomes) == 2 * 3 * (4 + 2 + 2)  # presets, groups; contexts of exact attention and of two kinds of data
    wrong = {one.setting: one.error for one in outcomes if abs(one.error) > BOUND}
    assert wrong == {}
    assert all(abs(one.error) < 0.005 for one in outcomes if one.setting.policy == "exact")


@pytest.mark.slow
def test_long_steps_are_predicted(tmp_path):
    errors = [abs(one.error) for one in validate_perf.emulator(tmp_path)]
    assert len(errors) == 66
    assert max(errors) <= BOUND
