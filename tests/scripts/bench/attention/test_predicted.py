"""The performance model predicts the emulator's steps: device time is the same on every machine."""

import pytest

from bench.attention import predicted
from bench.attention.predicted import BOUND, CONTEXTS
from bench.attention.predicted_disk import PIECE, PlainReads, disk
from bench.attention.predicted_steps import Outcome, Setting, Timed, busiest, from_known, line


def test_two_points_predict_a_third():
    assert line([Timed(100, 2.0), Timed(300, 3.0)])(500) == pytest.approx(4.0)
    times = {Setting("t", "p", "exact", 1, tokens): Timed(tokens, 1 + tokens / 1024) for tokens in CONTEXTS}
    assert [one.setting.tokens for one in from_known(times)] == [8192, 16384, 65536]
    assert all(one.error == pytest.approx(0) for one in from_known(times))


def test_the_busiest_is_a_die_or_a_channel():
    event = '{"ph":"X","name":"%s","pid":%d,"tid":%d,"ts":0.1,"dur":%s}'
    events = [("sense", 2, 1, "35.5"), ("sense", 2, 3, "20"), ("transfer", 1, 0, "9"), ("sense", 2, 3, "20.25")]
    others = [("transfer", 3, 0, "900"), ("program", 2, 1, "900")]  # not the flash's reads
    assert busiest(",".join(event % one for one in events + others)) == pytest.approx(40.25)
    assert busiest(",".join(event % one for one in [*events, ("transfer", 1, 0, "40")])) == pytest.approx(49)


def test_a_table_has_every_setting():
    outcomes = [Outcome(Setting("emulator", "smartssd", "exact", 1, tokens), 1.1, 1.0) for tokens in CONTEXTS]
    text = predicted.table(outcomes).text()
    assert text.startswith("emulator: 5 of 5 settings within 15 %, median 10.0 %, largest 10.0 %.")
    assert "| emulator | smartssd | exact | f16 | in runs | 1 | 4K +10.0 %, 8K +10.0 %," in text


def test_steps_of_the_emulator_are_predicted(tmp_path, monkeypatch):
    """At a few thousand tokens: what is fixed counts most there."""
    monkeypatch.setattr(predicted, "GROUPS", (8,))
    monkeypatch.setattr(predicted, "PRESETS", {"smartssd": predicted.PRESETS["smartssd"]})
    known = (3072, 8192)
    outcomes = predicted.emulator(tmp_path, (*known, 4096), known)
    # contexts of exact attention in four formats, of two policies with two kinds of data
    assert len(outcomes) == 4 * 3 + 2 * 2 * 1
    check(outcomes)


def check(outcomes):
    wrong = {one.setting: one.error for one in outcomes if abs(one.error) > BOUND}
    assert wrong == {}
    plain = [one for one in outcomes if one.setting.policy == "exact" and one.setting.kv_format == "f16"]
    assert all(abs(one.error) < 0.005 for one in plain)  # rows of other formats leave parts of pages and of stripes


@pytest.mark.slow
def test_steps_of_all_groups_and_contexts_are_predicted(tmp_path):
    outcomes = predicted.emulator(tmp_path)
    assert len(outcomes) == 2 * 3 * (4 * 5 + 2 * 2 * 3)  # as above, and groups
    check(outcomes)


def test_plain_reads_take_the_end_of_the_data(tmp_path, monkeypatch):
    """The file has a hole, which is not read; each piece is read once."""
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(8 * PIECE)
        file.seek(8 * PIECE)
        file.write(bytes(range(256)) * (24 * PIECE // 256))
    with PlainReads(path) as plain:
        offsets = []
        monkeypatch.setattr(plain, "_read", offsets.append)
        assert plain.seconds(2, 3 * PIECE) > 0
    assert offsets == [[at * PIECE for at in range(first, first + 3)] for first in (26, 29)]


def test_steps_from_a_disk_have_predictions(tmp_path):
    """Times say nothing on a busy machine: both are there, for each context."""
    outcomes = disk(tmp_path / "disk.kv", 1, 1, (8192, 16384))
    assert [one.setting.tokens for one in outcomes] == [8192, 16384]
    assert all(one.predicted > 0 and one.measured > 0 for one in outcomes)
