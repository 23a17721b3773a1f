"""The steps that `kvdrive plan --hardware here` predicts, beside steps of the whole model.

A plan measures a few of the model's layers with a short context, and one layer's attention with 256 and 4,096 tokens
(`kvdrive.perf.here`). The settings have other contexts, shares of X-cache and all layers; nothing is fitted to them.
Their caches are filled with random numbers, so that no prefill is waited for. Everything is measured by two clocks:
wall time wants a machine that does nothing else; processor time hardly does.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, LlamaConfig, OPTConfig, PreTrainedModel

from bench_decode import LLAMA_426M
from kvdrive.kvcache.cache import DriveCache
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.perf.here import Here, measure
from kvdrive.perf.kept import KeptRates, processor
from kvdrive.plugins.support import decoder_config, heads_of
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.targets.opening import DriveOptions, cache_folder, open_drives
from kvdrive.targets.temporary import temporary_folder
from page_blocks import write_blocks

PAGE = Path(__file__).parents[1] / "docs/xcache.md"
BOUND = 0.15
STEPS = 9
OPT_125M = {
    "vocab_size": 50272,
    "hidden_size": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 1 << 15,
    "word_embed_proj_dim": 768,
}
CONFIGS = {"426m": LlamaConfig(**LLAMA_426M), "opt-125m": OPTConfig(**OPT_125M)}


@dataclass(frozen=True)
class Setting:
    """A decode step of `batch` sequences of `tokens` tokens, a `share` of them stored as X."""

    model: str
    target: str
    tokens: int
    batch: int
    share: float


SETTINGS = (
    Setting("426m", "emulator", 4096, 1, 0.0),
    Setting("426m", "emulator", 16384, 2, 0.0),
    Setting("426m", "cpu", 8192, 1, 0.0),
    Setting("426m", "emulator", 2048, 2, 0.5),
    Setting("opt-125m", "emulator", 4096, 2, 0.5),
    Setting("opt-125m", "emulator", 2048, 1, 1.0),
)


@dataclass(frozen=True)
class Time:
    """Seconds of the fastest decode step: wall time, and processor time of all threads."""

    wall: float
    processor: float


CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


def fill(model: PreTrainedModel, attached: Attachment, cache: DriveCache, setting: Setting) -> None:
    """Give every layer K and V of random numbers; rows that are stored as X get those of random inputs."""
    config = decoder_config(model)
    _, kv_heads, head_dim = heads_of(config)
    xcache = attached._backing.xcache
    generator = torch.Generator().manual_seed(1)
    positions = torch.arange(setting.tokens)[None]
    rotary = getattr(model.get_decoder(), "rotary_emb", None)
    as_inputs = 0 if xcache is None else xcache.sequences_of(setting.batch)
    for layer in range(config.num_hidden_layers):
        size = (setting.batch, kv_heads, setting.tokens, head_dim)
        k, v = (torch.randn(size, generator=generator).to(model.dtype) for _ in range(2))
        if xcache is not None:
            x = torch.randn(setting.batch, setting.tokens, config.hidden_size, generator=generator).to(model.dtype)
            embeddings = None if rotary is None else rotary(x, positions)
            xcache.inputs._latest[layer] = (x, {"position_ids": positions, "position_embeddings": embeddings})
            for row in range(as_inputs):
                k[row], v[row] = xcache.projections.project(layer, x[row], positions[0].numpy(), 0)
        cache.update(k, v, layer)
    cache.synchronize()


def fastest(model: PreTrainedModel, cache: DriveCache, setting: Setting) -> Time:
    """The fastest of some decode steps, by each clock."""
    found = []
    with torch.no_grad():
        for number in range(STEPS + 1):
            ids = torch.ones(setting.batch, 1, dtype=torch.int64)
            # without a mask and with positions of its own, as a filled cache has no token ids
            at = torch.full((setting.batch, 1), setting.tokens + number)
            began, computed = time.perf_counter(), time.process_time()
            model(ids, position_ids=at, past_key_values=cache, use_cache=True, logits_to_keep=1)
            found.append((time.perf_counter() - began, time.process_time() - computed))
    return Time(*(min(times) for times in zip(*found, strict=True)))


def measured(model: PreTrainedModel, setting: Setting, drives: DriveOptions) -> tuple[Time, int]:
    """The setting's step, and how many sequences were stored as X."""
    per_token = 4 * decoder_config(model).num_hidden_layers * decoder_config(model).hidden_size
    capacity = max(1 << 30, 4 * setting.batch * setting.tokens * per_token)
    options = replace(drives, capacity_bytes=capacity)
    with open_drives(options) as opened, attach(model, opened, xcache=setting.share) as attached:
        cache = attached.cache()
        assert isinstance(cache, DriveCache)
        fill(model, attached, cache, setting)
        as_inputs = sum(isinstance(row, InputSequence) for row in cache.sequences)
        return fastest(model, cache, setting), as_inputs


def compare(setting: Setting, model: PreTrainedModel, known: dict[str, Here], drives: DriveOptions) -> dict[str, Any]:
    """A setting's row. `known`: the rates by each clock."""
    found, as_inputs = measured(model, setting, drives)
    row = asdict(setting)
    for clock, rates in known.items():
        parts = rates.parts(decoder_config(model).num_hidden_layers, setting.tokens, setting.batch, as_inputs)
        predicted, seconds = sum(part.seconds for part in parts), getattr(found, clock)
        row |= {f"{clock}_ms": 1e3 * seconds, f"{clock}_predicted_ms": 1e3 * predicted}
        row |= {f"{clock}_error": predicted / seconds - 1}
        row |= {f"{clock}_{part.name}_ms": 1e3 * part.seconds for part in parts}
    return row


def table(rows: list[dict[str, Any]], threads: int) -> str:
    """The page's table and the sentence below it."""
    lines = [
        "| model | target | tokens | batch | X-cache | ms | predicted | error | processor ms | predicted | error |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cells = [row["model"], row["target"], f"{row['tokens']:,}", f"{row['batch']}", f"{row['share']:g}"]
        for clock in CLOCKS:
            cells += [f"{row[f'{clock}_{what}']:,.1f}" for what in ("ms", "predicted_ms")]
            cells.append(f"{row[f'{clock}_error']:+.0%}")
        lines.append(f"| {' | '.join(cells)} |")
    within = {clock: sum(abs(row[f"{clock}_error"]) <= BOUND for row in rows) for clock in CLOCKS}
    return "\n".join(lines) + (
        f"\n\nWithin {BOUND:.0%}: {within['wall']} of {len(rows)} by wall time, {within['processor']} by processor "
        f"time. Measured on {processor()}, {threads} threads; bfloat16 models with random weights; the fastest of "
        f"{STEPS} steps."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(CONFIGS), help="only its settings; the page stays as it is")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, default=Path("out/bench_plan.json"), help="write the numbers there")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    console, rows = Console(stderr=True), []
    cache_folder().mkdir(parents=True, exist_ok=True)
    with temporary_folder(cache_folder()) as folder:
        for name, config in CONFIGS.items():
            settings = [one for one in SETTINGS if one.model == name and given.model in (None, name)]
            if not settings:
                continue
            torch.manual_seed(1)
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
            for setting in settings:
                drives = DriveOptions("fast", "", given.threads, 4 << 30, folder, target=setting.target, format=True)
                known = {
                    clock: measure(config, setting.batch, drives, KeptRates(None), read)
                    for clock, read in CLOCKS.items()
                }
                rows.append(compare(setting, model, known, drives))
                console.print(rows[-1])
    text = table(rows, given.threads)
    print(text)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps({"rows": rows}, indent=1))
    if given.model is None:
        write_blocks(PAGE, {"bench-plan": text})


if __name__ == "__main__":
    main()
