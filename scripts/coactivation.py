"""Bundles of neurons that are used together: `LLM in a flash` tried them and found that they read more, not less.

Each neuron is stored beside its closest friend, the one that is most often used by the same tokens. A read brings
both. The friends are those in one half of a text, the reads are counted in the other half, for a window of tokens
whose neurons are in memory. Nothing is timed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvdrive.eval.evaluation import documents
from kvdrive.eval.perplexity import windows
from kvdrive.generation import checkpoints, places
from kvdrive.weights.training import watch
from page_blocks import write_blocks

PAGE = Path(__file__).resolve().parent.parent / "docs/weights.md"
Used = NDArray[np.bool_]  # [tokens, neurons]
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


def block(counts: list[Count], about: str) -> str:
    """One line per layer."""
    columns = (
        "layer",
        "used",
        "not in memory",
        "reads of pairs",
        "their bytes",
        "friend much used",
        "most friends of one",
    )
    head = f"| {' | '.join(columns)} |"
    lines = [head, "| ---: " * 7 + "|"]
    for layer, one in enumerate(counts):
        cells = f"{one.used:.0f} | {one.missing:.1f} | {one.reads:.1f} | {one.bytes_read:.2f}x"
        lines.append(f"| {layer} | {cells} | {one.to_most_used:.0%} | {one.to_one} |")
    return "\n".join([*lines, "", about])


def main() -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mini_relu", help="a dense model with ReLU")
    parser.add_argument("--window", type=int, default=5, help="tokens whose neurons are in memory")
    parser.add_argument("--windows", type=int, default=8, help="of text; half of them teach the friends")
    parser.add_argument("--tokens", type=int, default=512, help="of a window of text")
    parser.add_argument("--write", action="store_true", help="write the table to docs/weights.md")
    given = parser.parse_args()
    checkpoint = checkpoints.load(str(places.find(given.model)))
    texts = windows(documents(checkpoint, []), given.tokens - 1, 1, given.windows)
    names = [f"model.layers.{layer}.mlp" for layer in range(checkpoint.model.config.num_hidden_layers)]
    learned, rated = (watch(checkpoint.model, names, half, lambda: None) for half in (texts[::2], texts[1::2]))
    counts = [count(learned[name].used.numpy(), rated[name].used.numpy(), given.window) for name in names]
    neurons = checkpoint.model.config.intermediate_size
    about = (
        f"Model {given.model}, {neurons} neurons in a layer, held-out source code: {len(rated[names[0]].used):,} "
        f"tokens, the neurons of the last {given.window} in memory. Much used: the {MOST_USED:.0%} that the most "
        "tokens use."
    )
    text = block(counts, about)
    print(text)
    if given.write:
        write_blocks(PAGE, {"coactivation": text})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
