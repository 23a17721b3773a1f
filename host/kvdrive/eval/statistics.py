"""Means with their uncertainty: over windows of text, and over cases that are right or wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_Z = 1.959964  # 95 % of a normal distribution lie within so many standard deviations


def over_windows(values: Sequence[Sequence[float]]) -> tuple[float, float | None]:
    """Mean over windows of the mean of each window's tokens, and its standard error; None for a single window."""
    means = np.array([np.mean(window) for window in values])
    error = float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None
    return float(means.mean()), error


def share_interval(right: int, cases: int) -> list[float]:
    """The 95 % interval [low, high] of a share, by Wilson's formula: it holds for few cases, too."""
    share, weight = right / cases, _Z**2 / cases
    middle = share + weight / 2
    half = math.sqrt(weight * (share * (1 - share) + weight / 4))
    return [(middle - half) / (1 + weight), (middle + half) / (1 + weight)]
