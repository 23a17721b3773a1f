"""The time that a token waits while the window of neurons is managed, without reads.

The layers are those of the dense model of dense.py: 16 of 8,192 neurons of 8 KiB, half of which fit. A
neuron is active with a probability of its own, 5 % on average, as in a model with thresholds. For each token and layer,
the window gets the active neurons: it marks them, lets others leave, moves rows into their places, and says where the
product finds them. A reader that reads nothing stands for the disk. The best of a few runs counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from bench.setup import Setup
from bench.table import Block, Table
from bench.weights.dense_model import QUICK, DenseShape
from kvdrive.weights.bundles import NEURONS, Array, Part
from kvdrive.weights.reader import Reader
from kvdrive.weights.window import Window

WINDOW, ACTIVE, SHARE = 5, 0.05, 0.5
_WARM = 8  # tokens before the time counts


@dataclass
class Nothing:
    """A reader of weights that reads nothing: rows keep what they have."""

    rows: int = 0

    def read_rows(self, array: Array, indices: Any, to: Any, places: Any) -> None:
        """See Reader."""
        self.rows += len(indices)


def measure(shape: DenseShape, tokens: int, runs: int) -> dict[str, Any]:
    """Milliseconds per token of all layers, the best of `runs`, and how many neurons a token used and had read."""
    part = Part("up_proj.weight+down_proj.weight", "bfloat16", (1, 2 * shape.hidden), 0)
    array = Array("layer", NEURONS, shape.inner, part.bytes, 0, 0, (part,))
    random = np.random.default_rng(1)
    popular = random.lognormal(0, 1, (shape.layers, shape.inner))
    popular *= ACTIVE / popular.mean(1, keepdims=True)
    used = [[np.flatnonzero(random.random(shape.inner) < layer) for layer in popular] for _ in range(_WARM + tokens)]
    best = float("inf")
    for _ in range(runs):
        reader = Nothing()
        windows = [Window(cast(Reader, reader), array, int(SHARE * shape.inner), WINDOW) for _ in range(shape.layers)]
        for window in windows:
            window.memory.fill(1)  # as if read: no page is touched for the first time while the time counts
        for token, layers in enumerate(used):
            if token == _WARM:
                before, began = reader.rows, time.perf_counter()
            for window, active in zip(windows, layers, strict=True):
                window.hold(active)
                window.offsets(active)
        best = min(best, time.perf_counter() - began)
    return {
        "milliseconds": 1e3 * best / tokens,
        "used": sum(len(active) for layers in used[_WARM:] for active in layers) / tokens,
        "read": (reader.rows - before) / tokens,
    }


def run(setup: Setup) -> list[Block]:
    """One sentence."""
    shape, tokens, runs = setup.size((DenseShape(), 64, 3), (QUICK, 4, 1))
    found = measure(shape, tokens, runs)
    said = (
        f"Managing the window takes {found['milliseconds']:.2f} ms per token, for {found['used']:,.0f} neurons that it "
        f"uses, of which {found['read']:,.0f} are new."
    )
    return [Block("window", [Table(note=said)], found)]
