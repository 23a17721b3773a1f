"""Contenders take turns, and ratios are taken inside a round."""

import pytest

from bench.rounds import Contender, Rounds, take_turns
from bench.table import Table


def test_contenders_take_turns_and_warm_up_rounds_do_not_count():
    order = []
    contenders = [Contender(name, lambda name=name: order.append(name)) for name in "ab"]
    found = take_turns(contenders, rounds=2, warm_up=1)
    assert order == list("ababab")
    assert len(found.rounds) == 2
    assert found.names == ["a", "b"]
    assert all(seconds >= 0 for seconds in found.values("a"))


def test_a_contender_may_count_for_itself():
    found = take_turns([Contender("a", lambda: {"seconds": 7.0, "bytes": 3})], 3)
    assert (found.median("a"), found.median("a", "bytes")) == (7.0, 3)


def test_a_ratio_is_the_median_of_the_rounds_ratios():
    """The third round is slow for both: the ratio of the medians would be 3."""
    found = Rounds([{"a": {"seconds": a}, "b": {"seconds": b}} for a, b in ((1, 2), (2, 6), (30, 60))])
    assert found.faster("a", than="b") == 2
    assert found.faster("b", than="a") == 0.5


def test_a_row_has_a_cell_for_each_column():
    with pytest.raises(ValueError, match="a row has 1 cells, the table 2 columns"):
        Table(["a", "b"], [["1"]])
