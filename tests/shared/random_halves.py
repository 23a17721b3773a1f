"""Random rows for tests."""

import numpy as np


def halves(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normally distributed binary16 values."""
    return rng.standard_normal(shape).astype(np.float16)
