# SPDX-License-Identifier: Apache-2.0
"""Random patterns of the cycles in which one side of a channel can transfer a word."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, repeat
from typing import TypeAlias

import numpy as np

Gate: TypeAlias = Iterator[bool]

NONE, RARE, OFTEN, BURSTS = CLASSES = ("none", "1 in N stalls", "1 in N moves", "bursts")
_PERIOD = 4096  # cycles after which a pattern repeats


def gate(rng: np.random.Generator, stalls: str) -> Gate:
    """Yields True for each cycle in which a word may move. N is 2 to 8, a burst up to 100 cycles."""
    if stalls == NONE:
        return repeat(True)
    if stalls == BURSTS:
        lengths = rng.integers(1, 101, 200)
        pattern = np.repeat(np.arange(200) % 2 == rng.integers(2), lengths)[:_PERIOD]
    else:
        moves = rng.integers(rng.integers(2, 9), size=_PERIOD) == 0
        pattern = moves if stalls == OFTEN else ~moves
    return cycle(pattern.tolist())


def choose(rng: np.random.Generator) -> str:
    """One of the classes, each as likely as the others."""
    return CLASSES[rng.integers(len(CLASSES))]
