"""The dense layers of a decode step: bfloat16, compiled by torch, and with matrices in 8 bits (`--dtype int8`).

All contenders have the same random weights and the same K and V in memory, with packed attention; `on the drive` has K
and V behind the cpu target. llama.cpp, where `llama-bench` is on PATH, follows in bfloat16 and Q8_0. A second table
says what rounding costs on held-out text, in decode steps behind a context in bfloat16.
"""

from __future__ import annotations

import copy
import math
import statistics
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import sdpa_mask

from bench import rounds
from bench.decode import llama_cpp
from bench.decode.contenders import PACKED, Contender, PreallocatedLayer, packed_attention, sibling, states
from bench.decode.random_models import load
from bench.rounds import Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.errors import InputError
from kvdrive.eval.evaluation import documents
from kvdrive.eval.perplexity import windows
from kvdrive.eval.scoring import Scores, prefill
from kvdrive.eval.tasks import Tokens
from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Shape
from kvdrive.generation.matrices import round_matrices
from kvdrive.plugins.transformers import attach
from kvdrive.targets.opening import open_drives
from kvdrive.targets.options import DriveOptions

LARGE = "Llama with 426 million random weights"
PLAIN, COMPILED = "bfloat16", "bfloat16, torch.compile"


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
    PLAIN: unchanged,
    COMPILED: compiled,
    "int8 (`--dtype int8`)": round_matrices,
    "int8, inputs too (torch's dynamic quantisation)": dynamic,
}
ROUNDING = (round_matrices, dynamic)
ON_DRIVE: dict[str, Change] = {"bfloat16, on the drive": unchanged, "int8, on the drive": round_matrices}


@contextmanager
def contenders(
    model: PreTrainedModel, shape: Shape, room: int, folder: Path, threads: int, without: str = ""
) -> Iterator[list[Contender]]:
    """Models that share the weights, with empty caches of `room` tokens, bfloat16 first, `without` left out."""
    AttentionInterface.register(PACKED, packed_attention)
    AttentionMaskInterface.register(PACKED, sdpa_mask)
    found = []
    with ExitStack() as opened:
        for name, change in IN_MEMORY.items():
            if name == without:
                continue
            one = _changed(model, change)
            one.set_attn_implementation(PACKED)
            found.append(Contender(name, one, Cache(layers=[PreallocatedLayer(room) for _ in range(shape.layers)])))
        for name, change in ON_DRIVE.items():
            one = _changed(model, change)
            place = folder / name.split(",")[0]
            options = DriveOptions(threads=threads, folder=place, target="cpu", cache_bytes=8 << 30)
            drives = opened.enter_context(open_drives(options))
            found.append(Contender(name, one, opened.enter_context(attach(one, drives)).cache()))
        yield found


def _changed(model: PreTrainedModel, change: Change) -> PreTrainedModel:
    own = sibling(model)
    change(own)
    return own


def measure(
    model: PreTrainedModel, shape: Shape, context: int, count: int, folder: Path, threads: int, without: str = ""
) -> Rounds:
    """Steps of all contenders, after one that nobody counts."""
    with contenders(model, shape, context + count + 1, folder, threads, without) as running:
        for one in running:
            for layer, (k, v) in enumerate(states(shape, context, model.dtype)):
                one.cache.update(k, v, layer)
        token = torch.tensor([[1]])
        turns = [rounds.Contender(one.name, lambda one=one: one.step(token)) for one in running]
        return take_turns(turns, count, warm_up=1)


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


def run(setup: Setup) -> list[Block]:
    """The steps at some contexts, and what rounding costs."""
    torch.set_num_threads(setup.threads)
    name, contexts, count, without = setup.size(("426m", (256, 4096), 9, ""), ("mini", (64,), 1, COMPILED))
    model, shape = load(name, "bfloat16")
    found: dict[int, Rounds] = {}
    llama: dict[tuple[str, int], list[float]] = {}
    for context in contexts:
        with setup.folder() as folder:
            found[context] = measure(model, shape, context, count, folder, setup.threads, without)
            for kind in () if setup.quick else ("BF16", "Q8_0"):
                if taken := llama_cpp.measure(model, context, count, setup.threads, folder, kind):
                    llama[f"llama.cpp, {kind}", context] = taken
        setup.say(f"{context:,} tokens")
    texts, sizes = setup.size((("mini", "smollm2"), (448, 64, 4)), (("mini",), (64, 8, 1)))
    costs = [cost for text in texts for cost in costs_of(text, *sizes)]
    kept = {str(context): one.rounds for context, one in found.items()}
    return [
        Block("matrices", [speed_table(found, llama, setup.size(LARGE, f"Model {name}"))], kept),
        Block("rounding", [cost_table(costs)], [asdict(one) for one in costs]),
    ]


def speed_table(found: dict[int, Rounds], llama: dict[tuple[str, int], list[float]], model: str) -> Table:
    """A column for each context."""
    rows = []
    for name in next(iter(found.values())).names:
        cells = (_cell(one.median(name), one.faster(name, PLAIN)) for one in found.values())
        rows.append([name, *cells])
    for name in dict.fromkeys(name for name, _ in llama):
        cells = []
        for context, one in found.items():
            taken = llama.get((name, context))
            median = statistics.median(taken) if taken else math.nan
            cells.append(_cell(median, one.median(PLAIN) / median) if taken else "-")
        rows.append([name, *cells])
    note = f"{model}, one sequence; in brackets: how many times as fast as bfloat16 with K and V in memory."
    return Table(["step at a context of", *(f"{context:,}" for context in found)], rows, note)


def _cell(seconds: float, faster: float) -> str:
    return f"{1e3 * seconds:.1f} ms ({faster:.2f}x)"


def cost_table(costs: list[Cost]) -> Table:
    """The price of rounding."""
    head = ["model", "matrices", "tokens of text", "perplexity in bfloat16", "rounded", "KL, nats", "same choice"]
    rows = [
        [
            one.model,
            one.name,
            f"{one.tokens:,}",
            f"{one.before:.3f}",
            f"{one.after:.3f}",
            f"{one.kl:.5f}",
            f"{one.same:.1%}",
        ]
        for one in costs
    ]
    return Table(head, rows, align="llrrrrr")
