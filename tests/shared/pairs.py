# SPDX-License-Identifier: Apache-2.0
"""Matrices of test parameters: `make test` runs rows with every pair or with each value, `make test-full` all rows.

Faults that need three values at once are rare, those of one value or of a pair are not. Which rows are taken is the
same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

SEED = 1


def pairs_of(row: Sequence[int]) -> set[tuple[tuple[int, int], ...]]:
    """Pairs of a row: (factor, value) twice."""
    return set(combinations(enumerate(row), 2))


def covering_rows(sizes: Sequence[int], seed: int = SEED) -> list[tuple[int, ...]]:
    """Rows of indices that have each pair of values of two factors; `sizes`: the number of values of each factor.

    Greedy: the row with most of the pairs that are missing comes next. Factors are two at least.
    """
    rows = list(product(*map(range, sizes)))
    random.Random(seed).shuffle(rows)
    missing = set().union(*map(pairs_of, rows))
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(pairs_of(row) & missing))
        chosen.append(best)
        missing -= pairs_of(best)
    return chosen


def rows_of_each_value(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Rows of indices that have each value of each factor: as many as the longest factor has."""
    return [tuple(row % size for size in sizes) for row in range(max(sizes))]


def in_pairs(factors: Mapping[str, Iterable[Any]]) -> pytest.MarkDecorator:
    """Parametrize with all combinations of values; those that are not needed for a pair are slow tests.

    A key with commas ("group, d") is one factor that sets several arguments; its values are tuples.
    """
    return _parametrized(factors, covering_rows)


def by_value(factors: Mapping[str, Iterable[Any]]) -> pytest.MarkDecorator:
    """Like `in_pairs`, but a row is quick only if it is needed for a value: where factors do not meet in the code."""
    return _parametrized(factors, rows_of_each_value)


def some_quick(rows: Iterable[Any], quick: Iterable[Any]) -> list[Any]:
    """Values of one parameter, or tuples of several: those that are not in `quick` are slow tests."""
    chosen, found = list(quick), list(rows)
    assert all(one in found for one in chosen), chosen
    return [
        pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=() if row in chosen else pytest.mark.slow)
        for row in found
    ]


def _parametrized(
    factors: Mapping[str, Iterable[Any]], choose: Callable[[Sequence[int]], list[tuple[int, ...]]]
) -> pytest.MarkDecorator:
    values = [list(one) for one in factors.values()]
    fast = set(choose([len(one) for one in values]))
    several = ["," in name for name in factors]
    rows = []
    for row in product(*(range(len(one)) for one in values)):
        cells: list[Any] = []
        for factor, index in enumerate(row):
            value = values[factor][index]
            cells += value if several[factor] else [value]
        rows.append(pytest.param(*cells, marks=() if row in fast else pytest.mark.slow))
    names = [name.strip() for key in factors for name in key.split(",")]
    return pytest.mark.parametrize(names, rows)
