"""Perplexity after half of a context was removed, in several ways.

K and V of some tokens of a text are computed. The range behind the first group is removed, and the next tokens are
rated. The ways differ in what is kept and in the positions of the new tokens:

    full         nothing is removed: what the removal costs
    truncated    the last tokens are computed again, as if the text had begun with them (token truncation)
    moved        the last tokens keep their K and V, positions go on counting, and the first group is computed again
                 at the positions next to them: what kvdrive does
    trimmed      the same, but the first group keeps its K and V, and so its distance
    headless     the same without the first group, which holds the attention sinks
    renumbered   as trimmed, but new tokens take the positions behind the number of tokens that are left

Two more figures: `far` rates `trimmed` with the first group that much further away from the rest, as many removals
would. `echo` rates the first tokens of the removed range once more: what the last tokens' K and V still
know of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from bench.setup import Setup
from bench.table import Block, Table
from kvdrive import abi
from kvdrive.errors import InputError
from kvdrive.eval.library import held_out_modules
from kvdrive.eval.scoring import score
from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.plugins.support import decoder_config
from kvdrive.plugins.transformers import attach

Tokens = np.ndarray[Any, np.dtype[np.int64]]
PIECE = 512  # tokens of a prefill's call
FAR = (8_192, 32_768, 131_072)


def compute(model: Any, ids: Tokens) -> DynamicCache:
    """K and V of `ids`, at positions from 0 on."""
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        for first in range(0, len(ids), PIECE):
            model(torch.from_numpy(ids[None, first : first + PIECE]), past_key_values=cache, logits_to_keep=1)
    return cache


def parts(cache: DynamicCache, ranges: list[range]) -> DynamicCache:
    """A copy with the tokens of `ranges` only."""
    index = torch.tensor([token for one in ranges for token in one])
    copy = DynamicCache()
    for number, layer in enumerate(cache.layers):
        copy.update(layer.keys[:, :, index], layer.values[:, :, index], number)
    return copy


def nats(model: Any, cache: DynamicCache, given: Tokens, target: Tokens, position: int) -> list[float]:
    """Negative log likelihoods of `target` behind the token `given`, whose position is `position`."""
    ids = torch.from_numpy(np.concatenate([given, target[:-1]]))
    positions = torch.arange(position, position + len(ids))
    with torch.no_grad():
        logits = model(ids[None], past_key_values=cache, position_ids=positions[None]).logits[0].double()
    found: list[float] = torch.nn.functional.cross_entropy(logits, torch.from_numpy(target), reduction="none").tolist()
    return found


def moved_away(cache: DynamicCache, model: Any, tokens: int, by: int) -> DynamicCache:
    """A copy whose first `tokens` tokens have positions that are `by` smaller: K is rotated back."""
    rotary = model.model.rotary_emb
    cos, sin = rotary(torch.zeros(1), torch.tensor([[by]]))
    copy = parts(cache, [range(cache.get_seq_length())])
    for layer in copy.layers:
        keys = layer.keys[:, :, :tokens]
        low, high = keys.chunk(2, dim=-1)
        layer.keys[:, :, :tokens] = keys * cos - torch.cat([-high, low], dim=-1) * sin
    return copy


def measure(checkpoint: Checkpoint, text: Tokens, tokens: int, targets: int) -> dict[str, list[float]]:
    """Nats of the targets in each way."""
    model, head_dim = checkpoint.model, checkpoint.shape.head_dim
    group = abi.PAGE_BYTES // (2 * head_dim)
    removed = tokens // 2 // group * group
    context, target, last = text[: tokens - 1], text[tokens : tokens + targets], text[tokens - 1 : tokens]
    full = compute(model, context)
    kept = range(group + removed, tokens - 1)
    short = compute(model, text[group + removed : tokens - 1])
    trimmed = parts(full, [range(group), kept])
    moved = moved_away(trimmed, model, group, -removed)
    echo = text[group : group + targets]
    found = {
        "full": nats(model, parts(full, [range(tokens - 1)]), last, target, tokens - 1),
        "truncated": nats(model, parts(short, [range(len(kept))]), last, target, len(kept)),
        "moved": nats(model, parts(moved, [range(group + len(kept))]), last, target, tokens - 1),
        "trimmed": nats(model, parts(trimmed, [range(group + len(kept))]), last, target, tokens - 1),
        "headless": nats(model, parts(full, [kept]), last, target, tokens - 1),
        "renumbered": nats(model, parts(trimmed, [range(group + len(kept))]), last, target, group + len(kept)),
        "echo full": nats(model, full, last, echo, tokens - 1),
        "echo truncated": nats(model, short, last, echo, len(kept)),
        "echo moved": nats(model, moved, last, echo, tokens - 1),
    }
    for by in FAR:
        away = moved_away(trimmed, model, group, by)
        found[f"far {by}"] = nats(model, away, last, target, tokens - 1)
    return found


def on_drive(checkpoint: Checkpoint, text: Tokens, tokens: int, targets: int) -> list[float]:
    """Nats of the targets by the product itself: a drive, whose context is used up by the last token of the text."""
    with (
        attach(checkpoint.model, overflow="trim", overflow_ratio=0.5, context=tokens - 1, spill=64) as attached,
        torch.no_grad(),
    ):
        cache = attached.cache()
        checkpoint.model(torch.from_numpy(text[None, : tokens - 1]), past_key_values=cache, logits_to_keep=1)
        return score(checkpoint.model, int(text[tokens - 1]), text[tokens : tokens + targets], cache).nats.tolist()


def texts(checkpoint: Checkpoint, count: int, tokens: int) -> list[Tokens]:
    """The beginnings of the longest modules of the standard library that models/mini never saw."""
    found: list[Tokens] = []
    for module in held_out_modules():
        ids = checkpoint.tokenizer(module.text, add_special_tokens=True, verbose=False)["input_ids"]
        if len(ids) >= tokens:
            found.append(np.array(ids[:tokens], np.int64))
        if len(found) == count:
            return found
    raise InputError(f"the library has only {len(found)} texts of {tokens} tokens")


NAMES = {
    "full": "nothing leaves",
    "truncated": "the last half computed again (token truncation)",
    "moved": "**half leaves, first group next to the rest (kvdrive)**",
    "trimmed": "half leaves, first group at its old positions",
    "headless": "half leaves, the first group too",
    "renumbered": "half leaves, new tokens numbered from what is left",
    **{f"far {by}": f"first group {by:,} positions further away" for by in FAR},
}


NAMES_AND_ECHOES = (*NAMES, *(f"echo {way}" for way in ("full", "truncated", "moved")))


def of_model(name: str, tokens: int, targets: int, count: int) -> dict[str, Any]:
    """Perplexities of all texts, and of the first one also on a drive."""
    checkpoint = checkpoints.load(name)
    per_text = []
    for number, text in enumerate(texts(checkpoint, count, tokens + targets)):
        rated = measure(checkpoint, text, tokens, targets)
        if number == 0:
            rated["drive"] = on_drive(checkpoint, text, tokens, targets)
        per_text.append({way: float(np.mean(found)) for way, found in rated.items()})
    return {
        "positions": decoder_config(checkpoint.model).max_position_embeddings,
        "perplexity": {way: math.exp(np.mean([one[way] for one in per_text])) for way in NAMES_AND_ECHOES},
        "each": [{way: math.exp(value) for way, value in one.items()} for one in per_text],
    }


def run(setup: Setup) -> list[Block]:
    """A column for each model."""
    models, tokens, targets, count = setup.size((("mini", "smollm2"), 4096, 256, 3), (("mini",), 512, 16, 1))
    results = {}
    for name in models:
        results[name] = of_model(name, tokens, targets, count)
        setup.say(f"{name}: {results[name]['perplexity']}")
    return [Block("overflow", [table(results, tokens, targets)], results)]


def table(results: dict[str, Any], tokens: int, targets: int) -> Table:
    """A row for each way."""
    rows = [[name, *(f"{one['perplexity'][way]:.2f}" for one in results.values())] for way, name in NAMES.items()]
    for way, name in {"full": "nothing leaves", "moved": "kvdrive", "truncated": "token truncation"}.items():
        cells = (f"{one['perplexity'][f'echo {way}']:.2f}" for one in results.values())
        rows.append([f"of removed tokens said again: {name}", *cells])
    drives = [
        f"{name} {one['each'][0]['drive']:.3f} against {one['each'][0]['moved']:.3f}" for name, one in results.items()
    ]
    rated = ", ".join(f"{len(one['each'])} for {name}" for name, one in results.items())
    note = (
        f"{tokens:,} tokens of modules of Python's library that models/mini never saw ({rated}): half of them leave, "
        f"and the next {targets} tokens are rated. Stock attention over K and V that were cut; the first text with the "
        f"drive itself: {', '.join(drives)}."
    )
    return Table(["perplexity", *results], rows, note)
