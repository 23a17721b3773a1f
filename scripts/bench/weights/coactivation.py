"""Bundles of neurons that are used together: `LLM in a flash` tried them and found that they read more, not less.

Each neuron is stored beside its closest friend, the one that is most often used by the same tokens. A read brings
both. The friends are those in one half of a text, the reads are counted in the other half, for a window of tokens
whose neurons are in memory. Nothing is timed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.eval.evaluation import documents
from kvdrive.eval.perplexity import windows
from kvdrive.generation import checkpoints, places
from kvdrive.weights.training import watch

Used = NDArray[np.bool_]  # [tokens, neurons]
MODEL, WINDOW = "mini_relu", 5
MOST_USED = 0.1  # share of the neurons


@dataclass(frozen=True)
class Count:
    """Of one layer, per token: neurons `used`, those `missing` in memory, and `reads` of pairs that bring them."""

    used: float
    missing: float
    reads: float
    to_most_used: float  # share of the neurons whose friend is one of the MOST_USED
    to_one: int  # neurons that have the same friend, at most

    @property
    def bytes_read(self) -> float:
        """Beside those of single neurons."""
        return 2 * self.reads / self.missing


def friends_of(used: Used) -> NDArray[np.int64]:
    """[neurons]: for each neuron the other one that is used by the most of its tokens; the lowest number if equal."""
    as_numbers = used.astype(np.float32)
    together = as_numbers.T @ as_numbers
    np.fill_diagonal(together, -1)
    return np.argmax(together, axis=1)


def reads_of(missing: NDArray[np.int64], friends: NDArray[np.int64], popularity: NDArray[np.int64]) -> int:
    """Reads of pairs that bring all `missing` neurons, those first that the fewest pairs hold."""
    wanted = set(missing.tolist())
    count = 0
    for neuron in missing[np.argsort(popularity[missing], kind="stable")].tolist():
        if neuron in wanted:
            wanted -= {neuron, int(friends[neuron])}
            count += 1
    return count


def count(learned: Used, rated: Used, window: int) -> Count:
    """Reads of `rated`, with the neurons of the last `window` tokens in memory and the friends in `learned`."""
    friends = friends_of(learned)
    popularity = np.bincount(friends, minlength=len(friends))
    most_used = np.argsort(-learned.sum(0), kind="stable")[: round(MOST_USED * len(friends))]
    missing_neurons, reads = 0, 0
    for token in range(window, len(rated)):
        missing = np.flatnonzero(rated[token] & ~rated[token - window : token].any(0))
        missing_neurons += len(missing)
        reads += reads_of(missing, friends, popularity)
    tokens = len(rated) - window
    return Count(
        used=float(rated[window:].sum(1).mean()),
        missing=missing_neurons / tokens,
        reads=reads / tokens,
        to_most_used=float(np.isin(friends, most_used).mean()),
        to_one=int(popularity.max()),
    )


def run(setup: Setup) -> list[Block]:
    """A row for each layer."""
    count_of_windows, tokens = setup.size((8, 512), (2, 64))
    checkpoint = checkpoints.load(str(places.find(MODEL)))
    texts = windows(documents(checkpoint, []), tokens - 1, 1, count_of_windows)  # half of them teach the friends
    names = [f"model.layers.{layer}.mlp" for layer in range(checkpoint.model.config.num_hidden_layers)]
    learned, rated = (watch(checkpoint.model, names, half, lambda: None) for half in (texts[::2], texts[1::2]))
    rows = []
    for layer, name in enumerate(names):
        one = count(learned[name].used.numpy(), rated[name].used.numpy(), WINDOW)
        numbers = (f"{one.used:.0f}", f"{one.missing:.1f}", f"{one.reads:.1f}", f"{one.bytes_read:.2f}x")
        rows.append([str(layer), *numbers, f"{one.to_most_used:.0%}", str(one.to_one)])
    note = (
        f"Model {MODEL}, {checkpoint.model.config.intermediate_size} neurons in a layer, held-out source code: "
        f"{len(rated[names[0]].used):,} tokens, the neurons of the last {WINDOW} in memory. Much used: the "
        f"{MOST_USED:.0%} that the most tokens use."
    )
    head = [
        "layer",
        "used",
        "not in memory",
        "reads of pairs",
        "their bytes",
        "friend much used",
        "most friends of one",
    ]
    return [Block("coactivation", [Table(head, rows, note, align="r" * len(head))])]
