"""The dense layers of a decode step: bfloat16, compiled by torch, and with matrices in 8 bits (`--dtype int8`).

All contenders have the same random weights and the same K and V in memory, with packed attention; `on the drive` has K
and V behind the cpu target. A round decodes one token with each of them; ratios are taken inside a round, and their
median is reported. llama.cpp, where `llama-bench` is on PATH, follows in bfloat16 and Q8_0. A second table says what
rounding costs on held-out text, in decode steps behind a context in bfloat16. Writes docs/models.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import sdpa_mask

import llama_cpp
from bench_decode import load
from decode_contenders import PACKED, Contender, PreallocatedLayer, packed_attention, sibling, states
from kvdrive.errors import InputError
from kvdrive.eval.evaluation import documents
from kvdrive.eval.perplexity import windows
from kvdrive.eval.scoring import Scores, prefill
from kvdrive.eval.tasks import Tokens
from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Shape
from kvdrive.generation.matrices import round_matrices
from kvdrive.perf.kept import processor
from kvdrive.plugins.attach import AttentionOptions, attach_to
from kvdrive.targets.opening import DriveOptions, drive_folder, open_drives
from page_blocks import write_blocks

PAGE = Path(__file__).resolve().parent.parent / "docs" / "models.md"
TEXT_MODELS = ("mini", "smollm2")
LARGE = "Llama with 426 million random weights"


@dataclass
class Row:
    """A contender at one context. `ratio`: bfloat16's time over its own, median over the rounds."""

    name: str
    context: int
    seconds: list[float] = field(default_factory=list)
    ratio: float = math.nan


@dataclass(frozen=True)
class Cost:
    """Decode steps over `tokens` of text, with perplexities in bfloat16 (`before`) and rounded (`after`).

    `kl`: divergence from bfloat16 in nats per token. `same`: share of tokens with the same first choice.
    """

    model: str
    name: str
    tokens: int
    before: float
    after: float
    kl: float
    same: float


class DynamicLinear(torch.nn.Module):
    """`linear` as torch's dynamic quantisation computes it: its inputs are rounded to 8 bits, too, in each call."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

        alone = torch.nn.Sequential(copy.deepcopy(linear).float())
        with warnings.catch_warnings(action="ignore"):  # torch announces that these modules will move to torchao
            self.inner = quantize_dynamic(alone, {torch.nn.Linear: per_channel_dynamic_qconfig}, torch.qint8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.inner(inputs.float())
        return out.to(inputs.dtype)


def compiled(model: PreTrainedModel) -> None:
    """Compile the feed-forward parts: most of a step's weights, and no attention in between."""
    for layer in model.model.layers:
        layer.mlp = torch.compile(layer.mlp)


def dynamic(model: PreTrainedModel) -> None:
    """Replace all linear layers by `DynamicLinear`s."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear:
                setattr(parent, name, DynamicLinear(child))


def unchanged(model: PreTrainedModel) -> None:
    """bfloat16 as it is."""


Change = Callable[[PreTrainedModel], object]
IN_MEMORY: dict[str, Change] = {
    "bfloat16": unchanged,
    "bfloat16, torch.compile": compiled,
    "int8 (`--dtype int8`)": round_matrices,
    "int8, inputs too (torch's dynamic quantisation)": dynamic,
}
ROUNDING = (round_matrices, dynamic)
ON_DRIVE: dict[str, Change] = {"bfloat16, on the drive": unchanged, "int8, on the drive": round_matrices}


@contextmanager
def contenders(
    model: PreTrainedModel, shape: Shape, room: int, folder: Path, threads: int
) -> Iterator[list[Contender]]:
    """Models that share the weights, with empty caches of `room` tokens; bfloat16 comes first."""
    AttentionInterface.register(PACKED, packed_attention)
    AttentionMaskInterface.register(PACKED, sdpa_mask)
    found = []
    with ExitStack() as opened:
        for name, change in IN_MEMORY.items():
            one = _changed(model, change)
            one.set_attn_implementation(PACKED)
            found.append(Contender(name, one, Cache(layers=[PreallocatedLayer(room) for _ in range(shape.layers)])))
        for name, change in ON_DRIVE.items():
            one = _changed(model, change)
            place = folder / name.split(",")[0]
            options = DriveOptions(threads=threads, folder=place, target="cpu", cache_bytes=8 << 30)
            drives = opened.enter_context(open_drives(options))
            found.append(Contender(name, one, opened.enter_context(attach_to(one, drives, AttentionOptions())).cache()))
        yield found


def _changed(model: PreTrainedModel, change: Change) -> PreTrainedModel:
    own = sibling(model)
    change(own)
    return own


def measure(model: PreTrainedModel, shape: Shape, context: int, rounds: int, folder: Path, threads: int) -> list[Row]:
    """Steps of all contenders, interleaved, after one that nobody counts."""
    with contenders(model, shape, context + rounds + 1, folder, threads) as running:
        for one in running:
            for layer, (k, v) in enumerate(states(shape, context, model.dtype)):
                one.cache.update(k, v, layer)
        rows = [Row(one.name, context) for one in running]
        for turn in range(rounds + 1):
            for row, one in zip(rows, running, strict=True):
                start = time.perf_counter()
                one.step(torch.tensor([[1]]))
                if turn:
                    row.seconds.append(time.perf_counter() - start)
    for name, kind in (("llama.cpp, bfloat16", "BF16"), ("llama.cpp, Q8_0", "Q8_0")):
        if seconds := llama_cpp.measure(model, context, rounds, threads, folder, kind):
            rows.append(Row(name, context, seconds))
    for row in rows:
        row.ratio = statistics.median(first / own for first, own in zip(rows[0].seconds, row.seconds, strict=True))
    return rows


def costs_of(name: str, context: int, tokens: int, count: int) -> list[Cost]:
    """What rounding does to a model on `count` windows of held-out text; empty where the model is not installed."""
    try:
        plain = checkpoints.load(name, "bfloat16")
    except InputError:
        return []
    rounded = {one: _changed(plain.model, change) for one, change in IN_MEMORY.items() if change in ROUNDING}
    exact: list[Scores] = []
    found: dict[str, list[Scores]] = {one: [] for one in rounded}
    for text in windows(documents(plain, []), context, tokens, count):
        held = DynamicCache()
        prefill(plain.model, text[:context], held)
        exact.append(_steps(plain.model, held, text[context - 1 :]))
        for one, model in rounded.items():
            found[one].append(_steps(model, held, text[context - 1 :]))
    return [_cost(name, one, exact, scores) for one, scores in found.items()]


def _steps(model: PreTrainedModel, held: DynamicCache, text: Tokens) -> Scores:
    """Scores of all tokens of a text but the first, each from a step of its own; `held` stays as it is."""
    cache, logits = copy.deepcopy(held), []
    with torch.no_grad():
        for token in text[:-1]:
            logits.append(model(torch.tensor([[int(token)]]), past_key_values=cache).logits[0])
    return Scores.of(torch.cat(logits), text[1:])


def _cost(model: str, name: str, exact: list[Scores], found: list[Scores]) -> Cost:
    def mean(parts: list[NDArray[Any]]) -> float:
        return float(np.concatenate(parts).mean())

    return Cost(
        model,
        name,
        sum(len(one.nats) for one in exact),
        math.exp(mean([one.nats for one in exact])),
        math.exp(mean([one.nats for one in found])),
        mean([one.divergence(before) for one, before in zip(found, exact, strict=True)]),
        mean([one.agrees(before) for one, before in zip(found, exact, strict=True)]),
    )


def speed_table(rows: list[Row], threads: int, model: str = LARGE) -> str:
    """The steps of `model` for docs/models.md."""
    contexts = sorted({row.context for row in rows})
    lines = [
        f"| step at a context of | {' | '.join(f'{context:,}' for context in contexts)} |",
        "| --- |" + " ---: |" * len(contexts),
    ]
    for name in dict.fromkeys(row.name for row in rows):
        at = {row.context: row for row in rows if row.name == name}
        cells = (_cell(at[context]) if context in at else "-" for context in contexts)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    note = (
        f"{model}, one sequence; in brackets: how many times as fast as bfloat16 with K and V in memory. "
        f"Measured on {processor()}, {threads} threads, torch {torch.__version__}."
    )
    return "\n".join([*lines, "", note])


def _cell(row: Row) -> str:
    return f"{1e3 * statistics.median(row.seconds):.1f} ms ({row.ratio:.2f}x)"


def cost_table(costs: list[Cost]) -> str:
    """The price of rounding for docs/models.md."""
    lines = [
        "| model | matrices | tokens of text | perplexity in bfloat16 | rounded | KL, nats | same choice |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in costs:
        numbers = f"{one.before:.3f} | {one.after:.3f} | {one.kl:.5f} | {one.same:.1%}"
        lines.append(f"| {one.model} | {one.name} | {one.tokens:,} | {numbers} |")
    return "\n".join(lines)


def small() -> tuple[PreTrainedModel, Shape]:
    """The shipped model in bfloat16."""
    checkpoint = checkpoints.load(TEXT_MODELS[0], "bfloat16")
    return checkpoint.model, checkpoint.shape


def main() -> None:
    """Measure, print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 4096])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="the shipped model, short texts: a trial")
    parser.add_argument("--no-steps", action="store_true", help="only what rounding costs on text")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/models.md")
    options = parser.parse_args()
    if options.quick and options.write:
        parser.error("--quick measures another model than the page describes: leave out --write")
    torch.set_num_threads(options.threads)
    rows: list[Row] = []
    if not options.no_steps:
        model, shape = small() if options.quick else load("426m")
        contexts, rounds = ([64], 2) if options.quick else (options.contexts, options.rounds)
        for context in contexts:
            with drive_folder(None) as folder, tempfile.TemporaryDirectory(dir=folder) as place:
                rows += measure(model, shape, context, rounds, Path(place), options.threads)
    measured = f"Model {TEXT_MODELS[0]}" if options.quick else LARGE
    names, length = (TEXT_MODELS[:1], (64, 8, 1)) if options.quick else (TEXT_MODELS, (448, 64, 4))
    costs = [found for name in names for found in costs_of(name, *length)]
    blocks = {"matrices-cost": cost_table(costs)}
    if rows:
        blocks["matrices"] = speed_table(rows, options.threads, measured)
    for block in blocks.values():
        Console(width=160).print(block, markup=False, highlight=False)
    if options.write:
        write_blocks(PAGE, blocks)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        found = {"rows": [asdict(row) for row in rows], "costs": [asdict(one) for one in costs]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
