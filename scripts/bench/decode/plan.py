"""The steps that `kvdrive plan --hardware here` predicts, beside steps of the whole model.

A plan measures a few of the model's layers with a short context, and one layer's attention with 256 and 4,096 tokens
(`kvdrive.perf.here`). The settings have other contexts, shares of X-cache and all layers; nothing is fitted to them.
Their caches are filled with random numbers, so that no prefill is waited for. In each round a setting's rates are
measured, and right after that its steps, since the rates of a disk and of a machine that others use change: the medians
of the rounds are compared. Everything is measured by two clocks: wall time wants a machine that does nothing else;
processor time hardly does. Steps of the cpu target read K and V around the page cache; their bytes are counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, OPTConfig, PreTrainedModel

from bench.decode.random_models import LLAMA_426M
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.perf.here import Here, measure, sample
from kvdrive.perf.stored_rates import StoredRates
from kvdrive.plugins.support import decoder_config, heads_of
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.private import cache_folder
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.opening import open_drives
from kvdrive.targets.options import DriveOptions
from kvdrive.targets.temporary import temporary_folder

BOUND = 0.15
STEPS = 5  # of each round
OPT_125M = {
    "vocab_size": 50272,
    "hidden_size": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 1 << 15,
    "word_embed_proj_dim": 768,
}
SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 8192,
}
CONFIGS = {
    "426m": LlamaConfig(**LLAMA_426M),
    "opt-125m": OPTConfig(**OPT_125M),
    "small": LlamaConfig(**SMALL),
}


@dataclass(frozen=True)
class Setting:
    """A decode step of `batch` sequences of `tokens` tokens, a `share` of them stored as X."""

    model: str
    target: str
    tokens: int
    batch: int
    share: float


QUICK = (Setting("small", "emulator", 256, 1, 0.0),)
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
    """Seconds of a decode step: wall time, and processor time of all threads. `disk_bytes`: around the page cache."""

    wall: float
    processor: float
    disk_bytes: float = 0.0


@dataclass(frozen=True)
class Round:
    """What was measured at one time: a step, and by each clock the rates that predict it."""

    step: Time
    known: dict[str, Here]


CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


def fill(model: PreTrainedModel, attached: Attachment, cache: HfCache, setting: Setting) -> None:
    """Give every layer K and V of random numbers; rows that are stored as X get those of random inputs."""
    config = decoder_config(model)
    _, kv_heads, head_dim = heads_of(config)
    xcache = attached._storage.backing.xcache
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
    cache.batch.synchronize()
    cache.batch.part.shared.backing.flush()  # otherwise the drive may hold the last rows in memory


@contextmanager
def filled(model: PreTrainedModel, setting: Setting, drives: DriveOptions) -> Iterator[tuple[Callable[[], Time], int]]:
    """Measures the setting's step, the median of STEPS, whenever it is called; how many sequences are stored as X."""
    per_token = 4 * decoder_config(model).num_hidden_layers * decoder_config(model).hidden_size
    capacity = max(1 << 30, 4 * setting.batch * setting.tokens * per_token)
    with (
        open_drives(replace(drives, capacity_bytes=capacity)) as opened,
        attach(model, opened, xcache=setting.share) as attached,
        torch.no_grad(),
    ):
        kept = attached.cache()
        assert isinstance(kept, HfCache)
        fill(model, attached, kept, setting)
        ids = torch.ones(setting.batch, 1, dtype=torch.int64)

        def step() -> Time:
            # without a mask and with positions of its own, as a filled cache has no token ids
            at = torch.full((setting.batch, 1), kept.get_seq_length())
            began, computed, read = time.perf_counter(), time.process_time(), opened.stats().file_bytes_read
            model(ids, position_ids=at, past_key_values=kept, use_cache=True, logits_to_keep=1)
            wall, processor = time.perf_counter() - began, time.process_time() - computed
            return Time(wall, processor, opened.stats().file_bytes_read - read)

        def steps() -> Time:
            found = [step() for _ in range(STEPS)]
            return Time(*(statistics.median(getattr(one, name) for one in found) for name in Time.__annotations__))

        step()
        if isinstance(drive := opened.drives[0], CpuDrive):
            _require_disk(drive, step().disk_bytes, model, setting)
        yield steps, sum(isinstance(row, InputSequence) for row in kept.batch.sequences)


def _require_disk(drive: CpuDrive, read: float, model: PreTrainedModel, setting: Setting) -> None:
    """A plan is for K and V that come from the disk: make sure that they do."""
    _, kv_heads, head_dim = heads_of(decoder_config(model))
    stored = 4 * decoder_config(model).num_hidden_layers * kv_heads * head_dim * setting.tokens * setting.batch
    assert drive.read_stats().around_cache, "the file system reads around the page cache"
    assert read >= 0.9 * stored, f"a step reads its K and V, {stored:,} bytes, not {read:,.0f}"


def measured(
    setting: Setting,
    model: PreTrainedModel,
    samples: Callable[[int], PreTrainedModel],
    drives: DriveOptions,
    count: int,
) -> tuple[list[Round], int]:
    """`count` rounds, and how many sequences were stored as X. `samples`: makes a model of so many layers."""
    rounds, config = [], deepcopy(model.config)  # before the model is attached
    with temporary_folder(cache_folder()) as folder, filled(model, setting, drives) as (steps, as_inputs):
        for _ in range(count):
            known = {
                clock: measure(
                    config,
                    setting.batch,
                    replace(drives, folder=folder),
                    StoredRates(None),
                    read,
                    lambda _config, layers, _device: samples(layers),
                )
                for clock, read in CLOCKS.items()
            }
            rounds.append(Round(steps(), known))
    return rounds, as_inputs


def compare(setting: Setting, layers: int, rounds: list[Round], as_inputs: int) -> dict[str, Any]:
    """A setting's row: medians of the rounds."""
    row = asdict(setting) | {"disk_bytes": statistics.median(one.step.disk_bytes for one in rounds)}
    for clock in CLOCKS:
        parts = [one.known[clock].parts(layers, setting.tokens, setting.batch, as_inputs) for one in rounds]
        totals = [sum(part.seconds for part in several) for several in parts]
        steps = [getattr(one.step, clock) for one in rounds]
        predicted, seconds = statistics.median(totals), statistics.median(steps)
        row |= {f"{clock}_ms": 1e3 * seconds, f"{clock}_predicted_ms": 1e3 * predicted}
        row |= {f"{clock}_error": predicted / seconds - 1}
        row |= {f"{clock}_rounds": [[1e3 * one, 1e3 * other] for one, other in zip(steps, totals, strict=True)]}
        for name, several in zip(("model", "attention"), zip(*parts, strict=True), strict=True):
            row |= {f"{clock}_{name}_ms": 1e3 * statistics.median(part.seconds for part in several)}
    return row


def run(setup: Setup) -> list[Block]:
    """A row for each setting."""
    torch.set_num_threads(setup.threads)
    settings, count = setup.size((SETTINGS, 3), (QUICK, 1))
    rows: list[dict[str, Any]] = []
    with setup.folder() as folder:
        for name in dict.fromkeys(one.model for one in settings):
            config = CONFIGS[name]
            torch.manual_seed(1)
            model = AutoModelForCausalLM.from_config(deepcopy(config), dtype=torch.bfloat16).eval()
            samples = cache(partial(sample, config))
            for setting in (one for one in settings if one.model == name):
                drives = DriveOptions("fast", "", setup.threads, 4 << 30, folder, target=setting.target, format=True)
                rounds, as_inputs = measured(setting, model, samples, drives, count)
                rows.append(compare(setting, config.num_hidden_layers, rounds, as_inputs))
                setup.say(rows[-1])
    return [Block("plan", [table(rows, count)], rows)]


def table(rows: Sequence[dict[str, Any]], rounds: int) -> Table:
    """A row for each setting, and how many are within BOUND."""
    cells = []
    for row in rows:
        line = [row["model"], row["target"], f"{row['tokens']:,}", f"{row['batch']}", f"{row['share']:g}"]
        for clock in CLOCKS:
            line += [f"{row[f'{clock}_{what}']:,.1f}" for what in ("ms", "predicted_ms")]
            line.append(f"{row[f'{clock}_error']:+.0%}")
        cells.append(line)
    disk = max(row["disk_bytes"] for row in rows)
    within = {clock: sum(abs(row[f"{clock}_error"]) <= BOUND for row in rows) for clock in CLOCKS}
    note = (
        f"Within {BOUND:.0%}: {within['wall']} of {len(rows)} by wall time, {within['processor']} by processor time. "
        f"bfloat16 models with random weights; medians of {rounds} rounds of rates and {STEPS} steps. The cpu target "
        f"read {disk / 1e6:,.0f} MB a step around the page cache."
    )
    head = ["model", "target", "tokens", "batch", "X-cache", "ms", "predicted", "error"]
    head += ["processor ms", "predicted", "error"]
    return Table(head, cells, note, align="llrrrrrrrrr")
