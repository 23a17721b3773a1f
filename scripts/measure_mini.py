"""Measure a shipped model and write its card: perplexity by context, retrieval, curve of its training.

    python scripts/measure_mini.py [models/mini]

Stock transformers, weights in float32, modules of the standard library that were held out from training. Writes
measured.json and curve.png beside the weights, and the blocks of numbers in their README.md.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import transformers
from matplotlib.figure import Figure
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel

from kvdrive.eval import perplexity, retrieval, tasks
from kvdrive.eval.library import held_out_modules
from kvdrive.eval.tasks import Tokens
from pages.blocks import write_blocks

TARGETS, WINDOWS = 256, 8
CONTEXTS = (512, 2048, 8192)
PROMPTS = (512, 2048, 8192)
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
CASES_PER_DEPTH = 1
SEED = 2026


def measure(folder: Path) -> dict:
    """All numbers of the card."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def encode(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    documents = [np.array(encode(module.text), np.int64) for module in held_out_modules()]
    texts = perplexity.windows(documents, max(CONTEXTS), TARGETS, WINDOWS)
    cases = [case for tokens in PROMPTS for case in questions(encode, documents, tokens)]
    step = counter(len(texts) * len(CONTEXTS) + len(cases))
    with count_zeros(model) as zeros:
        rows = perplexity.by_context(model, texts, CONTEXTS, TARGETS, DynamicCache, step)
    found = retrieval.accuracy(model, cases, DynamicCache, step)
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "perplexity": [asdict(row) | {"perplexity": row.perplexity} for row in rows],
        "retrieval": [asdict(row) for row in found],
        **({"zero_activations": zeros.shares()} if model.config.hidden_act == "relu" else {}),
    }


class Zeros:
    """Activations of the feed-forward parts that were zero, layer by layer."""

    def __init__(self, layers: int) -> None:
        self.zero = [0] * layers
        self.all = [0] * layers

    def shares(self) -> list[float]:
        """Share of zeros for each layer, 0 to 1."""
        return [zero / total for zero, total in zip(self.zero, self.all, strict=True)]


@contextmanager
def count_zeros(model: PreTrainedModel) -> Iterator[Zeros]:
    """Count zeros while the model runs."""
    layers = model.get_decoder().layers
    zeros = Zeros(len(layers))

    def hook(index: int) -> Callable[..., None]:
        def count(_module: object, _inputs: object, output: torch.Tensor) -> None:
            zeros.zero[index] += int((output == 0).sum())
            zeros.all[index] += output.numel()

        return count

    hooks = [layer.mlp.act_fn.register_forward_hook(hook(index)) for index, layer in enumerate(layers)]
    try:
        yield zeros
    finally:
        for one in hooks:
            one.remove()


def questions(encode: tasks.Encoder, documents: list[Tokens], tokens: int) -> list[tasks.Case]:
    """The retrieval cases whose prompts have `tokens` tokens."""
    text = np.concatenate(documents)
    return tasks.cases(list(tasks.TASKS), encode, text, tokens, DEPTHS, CASES_PER_DEPTH, SEED)


def counter(total: int) -> Callable[[], None]:
    """Print the progress."""
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if done % 10 == 0 or done == total:
            print(f"{done} of {total}", flush=True)

    return step


def table(head: str, columns: list[int], rows: dict[str, list[str]]) -> str:
    """A Markdown table: one column per length of the context."""
    lines = [[head, *(f"{length:,}" for length in columns)], ["---", *["---:"] * len(columns)]]
    return "\n".join(
        "| " + " | ".join(line) + " |" for line in lines + [[name, *cells] for name, cells in rows.items()]
    )


def perplexity_block(measured: dict) -> str:
    """Perplexity by length of the context."""
    rows = measured["perplexity"]
    nats = [f"{row['nats']:.3f} ± {row['standard_error']:.3f}" for row in rows]
    cells = {"perplexity": [f"{row['perplexity']:.2f}" for row in rows], "nats per token": nats}
    return table("context", [row["context"] for row in rows], cells)


def retrieval_block(measured: dict) -> str:
    """Share of whole answers and of their tokens by length of the prompt, two lines per task."""
    cells: dict[str, list[str]] = {}
    for row in measured["retrieval"]:
        cells.setdefault(row["task"], []).append(f"{100 * row['exact']:.0f} %")
        cells.setdefault(f"{row['task']}, tokens", []).append(f"{100 * row['tokens']:.0f} %")
    return table("prompt", list(PROMPTS), cells)


def sparsity_block(measured: dict) -> str:
    """Zero activations."""
    shares = measured["zero_activations"]
    layers = ", ".join(f"{100 * share:.0f} %" for share in shares)
    return f"{100 * sum(shares) / len(shares):.0f} % of the activations are zero; layer by layer {layers}."


def training_block(facts: dict) -> str:
    """Size of the run."""
    last = facts["curve"][-1]
    return (
        f"{facts['parameters']:,} parameters; {facts['modules']:,} modules with {facts['tokens_of_text'] / 1e6:.1f}M "
        f"tokens of Python {facts['python']}; {facts['steps']:,} steps, {facts['tokens'] / 1e6:.1f}M tokens in "
        f"{facts['seconds'] / 60:.0f} minutes on two shared cores; last losses {last[3]:.2f} nats (text) and "
        f"{last[4]:.2f} (recall), at length {last[2]:,}; seed {facts['seed']}, torch {facts['torch']}."
    )


def picture(path: Path, facts: dict) -> None:
    """Losses against tokens, with the lengths of the sequences."""
    curve = np.array(facts["curve"])
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axis = figure.subplots()
    axis.plot(curve[:, 1] / 1e6, curve[:, 3], label="text")
    axis.plot(curve[:, 1] / 1e6, curve[:, 4], label="recalled tokens of the tasks")
    for start in np.flatnonzero(np.diff(curve[:, 2], prepend=0)):
        axis.axvline(curve[start, 1] / 1e6, color="gray", linewidth=0.6)
        axis.text(curve[start, 1] / 1e6, axis.get_ylim()[1], f" {curve[start, 2]:.0f}", va="top", fontsize=8)
    axis.set(xlabel="million tokens", ylabel="training loss, nats per token", ylim=(0, None))
    axis.legend()
    axis.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("models/mini"))
    folder = parser.parse_args().folder
    transformers.utils.logging.disable_progress_bar()
    facts = json.loads((folder / "training.json").read_text())
    measured = measure(folder)
    (folder / "measured.json").write_text(json.dumps(measured, indent=1) + "\n")
    picture(folder / "curve.png", facts)
    blocks = {"training": training_block(facts), "perplexity": perplexity_block(measured)}
    blocks |= {"retrieval": retrieval_block(measured)}
    if "zero_activations" in measured:
        blocks["sparsity"] = sparsity_block(measured)
    write_blocks(folder / "README.md", blocks)


if __name__ == "__main__":
    main()
