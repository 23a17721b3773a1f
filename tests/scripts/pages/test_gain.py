"""The picture of the gain has the numbers of the results, and their machine and date."""

import re

import pytest

from bench.machine import Machine
from bench.results import Result
from bench.table import Block, Table
from pages import gain

HEAD = ["model, context", "transformers sdpa", "other", "llama.cpp"]
ROWS = [["426m, 4,096", "250", "1", "50 (0.2x)"], ["426m, 16,384", "1,000", "1", "-"], ["mini, 4,096", "1", "1", "1"]]


def result():
    return Result(Machine("Some CPU", 4), "2001-02-03", Block("steps", [Table(HEAD, ROWS)]))


def test_rates_are_those_of_one_model():
    found = gain.rates_of(result())
    assert found.points == {"transformers sdpa": {4096: 4.0, 16384: 1.0}, "llama.cpp": {4096: 20.0}}
    assert found.contexts == [4096, 16384]


def test_the_picture_names_machine_date_and_what_was_not_measured():
    picture = gain.draw(gain.rates_of(result()))
    assert "Measured: Some CPU, 4 cores, 2001-02-03" in picture
    assert "not measured at 16,384" in picture
    assert picture.count("<circle") == 3
    assert {label for label, _ in gain.LINES.values() if label in picture} == {
        gain.LINES[name][0] for name in ("transformers sdpa", "llama.cpp")
    }


def test_faster_is_higher_and_a_longer_context_is_further_right():
    places = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', gain.draw(gain.rates_of(result())))
    (fast, (at4, _), (at16, slow)) = [tuple(map(float, place)) for place in places]
    assert fast[0] == at4 < at16
    assert fast[1] < slow


def test_no_result_is_an_error(tmp_path):
    with pytest.raises(KeyError, match="no decode/steps"):
        gain.rates(tmp_path)
