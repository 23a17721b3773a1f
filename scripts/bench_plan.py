"""Decode steps predicted from calibrations beside measured ones, with K and V or layer inputs on the drives.

A calibration belongs to a model's shape and a target: steps at a context of 16 tokens, and what a sequence of 256 and
of 8,192 tokens takes in one layer (`kvcache.xcache.measured`). Nothing is fitted to a setting. The settings have other
contexts, batches and shares of X-cache; their caches are filled with random numbers, so that no prefill is waited for.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, LlamaConfig, OPTConfig, PreTrainedModel

from bench_attention import processor
from bench_decode import LLAMA_426M
from kvdrive.kvcache.cache import DriveCache
from kvdrive.kvcache.xcache.measured import Heads, Measured, measure
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.plugins.support import decoder_config, heads_of
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.targets.opening import DriveOptions, cache_folder, open_drives

SHORT, LONG = 16, 8192  # contexts of the calibrations
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
class Calibration:
    """A model on a target: what was measured, and seconds of a step at SHORT tokens by its batch."""

    rates: Measured
    short: dict[int, float]
    layers: int

    def predicted(self, setting: Setting, as_inputs: int) -> float:
        """Seconds of a step."""
        attention = self.rates.step(setting.tokens, setting.batch - as_inputs, as_inputs)
        return self.short[setting.batch] + self.layers * (attention - self.rates.step(SHORT, setting.batch, 0))


def fill(model: PreTrainedModel, attached: Attachment, cache: DriveCache, setting: Setting) -> None:
    """Give every layer K and V of random numbers; rows that are stored as X get those of random inputs."""
    config = decoder_config(model)
    _, kv_heads, head_dim = heads_of(config)
    xcache = attached._backing.xcache
    generator = torch.Generator().manual_seed(1)
    positions = torch.arange(setting.tokens)[None]
    rotary = getattr(model.get_decoder(), "rotary_emb", None)
    for layer in range(config.num_hidden_layers):
        size = (setting.batch, kv_heads, setting.tokens, head_dim)
        k, v = (torch.randn(size, generator=generator).to(model.dtype) for _ in range(2))
        if xcache is not None:
            x = torch.randn(setting.batch, setting.tokens, config.hidden_size, generator=generator).to(model.dtype)
            embeddings = None if rotary is None else rotary(x, positions)
            xcache.inputs._latest[layer] = (x, {"position_ids": positions, "position_embeddings": embeddings})
            for row in range(xcache.sequences_of(setting.batch)):
                k[row], v[row] = xcache.projections.project(layer, x[row], positions[0].numpy(), 0)
        cache.update(k, v, layer)
    cache.synchronize()


def steps(model: PreTrainedModel, cache: DriveCache, setting: Setting) -> list[float]:
    """Seconds of some decode steps; the first one warms up."""
    found = []
    with torch.no_grad():
        for number in range(STEPS + 1):
            ids = torch.ones(setting.batch, 1, dtype=torch.int64)
            # without a mask and with positions of its own, as a filled cache has no token ids
            at = torch.full((setting.batch, 1), setting.tokens + number)
            began = time.perf_counter()
            model(ids, position_ids=at, past_key_values=cache, use_cache=True, logits_to_keep=1)
            found.append(time.perf_counter() - began)
    return found[1:]


def run(model: PreTrainedModel, setting: Setting, options: dict[str, Any], folder: Path) -> tuple[list[float], int]:
    """Measure a setting: seconds of the steps, and how many sequences were stored as X."""
    per_token = 4 * decoder_config(model).num_hidden_layers * decoder_config(model).hidden_size
    capacity = max(1 << 30, 4 * setting.batch * setting.tokens * per_token)
    drives = DriveOptions("fast", "", options["threads"], capacity, folder, target=setting.target, format=True)
    with open_drives(drives) as opened, attach(model, opened, xcache=setting.share) as attached:
        cache = attached.cache()
        assert isinstance(cache, DriveCache)
        fill(model, attached, cache, setting)
        as_inputs = sum(isinstance(row, InputSequence) for row in cache.sequences)
        return steps(model, cache, setting), as_inputs


def calibrate(model: PreTrainedModel, target: str, batches: set[int], threads: int, folder: Path) -> Calibration:
    """Calibrate a model on a target."""
    heads = Heads(*heads_of(decoder_config(model)))
    drives = DriveOptions("fast", "", threads, 4 << 30, folder, target=target, format=True)
    with open_drives(drives) as opened, attach(model, opened, xcache=1.0) as attached:
        xcache = attached._backing.xcache
        assert xcache is not None
        rates = measure(xcache, attached._backing, heads, shared=True, most=LONG)
    short = {
        batch: statistics.median(run(model, Setting("", target, SHORT, batch, 0.0), {"threads": threads}, folder)[0])
        for batch in sorted(batches)
    }
    return Calibration(rates, short, decoder_config(model).num_hidden_layers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(CONFIGS), help="only its settings")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="write the numbers there")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    console, rows = Console(stderr=True), []
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as name:
        folder = Path(name)
        for model_name, config in CONFIGS.items():
            settings = [one for one in SETTINGS if one.model == model_name]
            if given.model not in (None, model_name):
                continue
            torch.manual_seed(1)
            model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16).eval()
            for target in sorted({one.target for one in settings}):
                here = [one for one in settings if one.target == target]
                console.print(f"calibrating {model_name} on {target}")
                known = calibrate(model, target, {one.batch for one in here}, given.threads, folder)
                for setting in here:
                    seconds, as_inputs = run(model, setting, {"threads": given.threads}, folder)
                    measured, predicted = statistics.median(seconds), known.predicted(setting, as_inputs)
                    rows.append(
                        asdict(setting)
                        | {"ms": 1e3 * measured, "predicted_ms": 1e3 * predicted, "error": predicted / measured - 1}
                    )
                    console.print(rows[-1])
    print("| model | target | tokens | batch | X-cache | measured ms | predicted ms | error |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| {row['model']} | {row['target']} | {row['tokens']:,} | {row['batch']} | {row['share']:g} "
            f"| {row['ms']:,.1f} | {row['predicted_ms']:,.1f} | {row['error']:+.0%} |"
        )
    print(f"\nMeasured on {processor()}, {given.threads} threads; bfloat16 models with random weights.")
    if given.json:
        given.json.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
