# SPDX-License-Identifier: Apache-2.0
"""tests/shared/pairs.py: `make test` runs every pair of values, `make test-full` every combination."""

from itertools import combinations, product

import pytest
from pairs import covering_rows, in_pairs

SHAPES = [(2, 2), (3, 2, 2), (4, 3, 2, 2), (4, 4, 3), (2, 2, 2, 2, 2, 2), (1, 5, 3), (8, 6, 4)]


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("seed", [1, 2])
def test_each_pair_of_values_is_in_a_row(sizes: tuple[int, ...], seed: int) -> None:
    rows = covering_rows(sizes, seed)
    for a, b in combinations(range(len(sizes)), 2):
        assert {(row[a], row[b]) for row in rows} == set(product(range(sizes[a]), range(sizes[b])))
    assert len(set(rows)) == len(rows)
    assert rows == covering_rows(sizes, seed)


def test_rows_are_few() -> None:
    """At least the product of the two largest factors; the greedy choice takes at most a third more here."""
    assert len(covering_rows((4, 4, 3))) <= 21
    assert len(covering_rows((2, 2, 2, 2, 2, 2))) <= 8


def test_other_combinations_are_slow_and_none_is_missing() -> None:
    mark = in_pairs({"kind": "ab", "group, d": [(1, 8), (3, 40)], "masked": [True, False]})
    names, rows = mark.args
    assert names == ["kind", "group", "d", "masked"]
    expected = {(kind, *shape, masked) for kind, shape, masked in product("ab", [(1, 8), (3, 40)], [True, False])}
    assert {row.values for row in rows} == expected
    fast = [row.values for row in rows if not row.marks]
    assert len(fast) == 4
    assert all(mark.name == "slow" for row in rows for mark in row.marks)
