"""A decode step on this machine: a few of the model's layers are measured, and a step of all of them follows.

The layers have random weights in bfloat16; what they take does not depend on values. One sequence's attention is
measured with two lengths of its cache (`kvcache.drive_rates`): that of any context follows from a line through them.
"""

from __future__ import annotations

import copy
import hashlib
import os
import shutil
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig, OPTConfig, PreTrainedModel

from kvdrive.errors import InputError, UnsupportedError
from kvdrive.kvcache.drive_rates import Clock, Line
from kvdrive.kvcache.xcache.measured import Measured
from kvdrive.kvcache.xcache.share import choose
from kvdrive.perf import stored_rates
from kvdrive.perf.plan import Part, Plan
from kvdrive.perf.shapes import ModelShape
from kvdrive.perf.stored_rates import StoredRates
from kvdrive.perf.systems import Drives, System
from kvdrive.plugins.transformers import attach
from kvdrive.targets.group import DriveGroup
from kvdrive.targets.opening import open_drives
from kvdrive.targets.options import DriveOptions

CPU = torch.device("cpu")
SHORT = 16  # tokens in the caches of the steps that are measured
_LAYERS = 8  # most layers that are measured
_STEPS = 10


@dataclass(frozen=True)
class Here:
    """What a model takes on this machine and a drive. `dense`: seconds of a decode step with SHORT tokens in its cache,
    by the number of layers, for one size of batch. `attention`: of one sequence and layer.

    `x_bytes`: of X of a token in one layer; 0 where X-cache refuses the model, for the `refusal`.
    """

    dense: Line
    attention: Measured
    x_bytes: int
    refusal: str
    speed: str

    def parts(self, layers: int, tokens: int, batch: int, as_inputs: int) -> tuple[Part, Part]:
        """The step's matrices, and its attention. `as_inputs`: sequences that are stored as X."""
        model_bound, attention_bound = ("cores", "cores") if self.attention.shared else ("processor", "drives")
        bare = self.attention.step(SHORT, batch, 0)
        attention = self.attention.step(tokens, batch - as_inputs, as_inputs)
        model = max(self.dense.at(layers) - layers * bare, 0.0)
        return Part("model", model, model_bound), Part("attention", layers * attention, attention_bound)


@dataclass(frozen=True)
class Asked:
    """What is planned: a model's configuration and shape, and a step of `batch` sequences of `tokens` tokens.

    `share`: of the sequences, stored as X; None: the best. `device`: what computes the model, as torch names it.
    """

    config: Any
    shape: ModelShape
    tokens: int
    batch: int
    share: float | None
    device: str = "cpu"


def config_of(shape: ModelShape) -> Any:
    """A configuration of transformers with this shape."""
    same: dict[str, Any] = {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": 1 << 17,
    }
    if not shape.gated:
        return OPTConfig(**same, ffn_dim=shape.ffn, word_embed_proj_dim=shape.hidden)
    same |= {"intermediate_size": shape.ffn, "num_key_value_heads": shape.kv_heads}
    if shape.experts > 1:
        return MixtralConfig(**same, num_local_experts=shape.experts, num_experts_per_tok=shape.active)
    return LlamaConfig(**same)


def plan_here(asked: Asked, drives: DriveOptions, known: StoredRates | None = None) -> Plan:
    """The plan of a step on this machine, with one new drive in the folder of `drives`.

    Rates are those that `known` keeps (default: this machine's file), or are measured now. Raises InputError,
    UnsupportedError, CommandError, TargetError.
    """
    shape = asked.shape
    known = stored_rates.of_this_machine() if known is None else known
    found = measure(asked.config, asked.batch, drives, known, device=torch.device(asked.device))
    share, reason = _share(asked, found)
    as_inputs = int(share * asked.batch + 0.5)
    return Plan(
        shape,
        _system(asked, found, drives),
        asked.tokens,
        asked.batch,
        1,
        as_inputs / asked.batch,
        reason,
        found.parts(shape.layers, asked.tokens, asked.batch, as_inputs),
        weights_on="processor",
    )


def sample(config: Any, layers: int, device: torch.device = CPU) -> PreTrainedModel:
    """A model of the configuration with so many layers, on `device`. Raises InputError where they do not fit there."""
    few = copy.deepcopy(config)
    few.num_hidden_layers = layers
    if getattr(few, "layer_types", None):
        few.layer_types = few.layer_types[:layers]
    with torch.device("meta"):
        size = 2 * sum(part.numel() for part in AutoModelForCausalLM.from_config(few).parameters())
    if 4 * size > _memory(device):
        raise InputError(f"{layers} layers of the model take {size / 1e9:.0f} GB: too much to measure them here")
    torch.manual_seed(1)
    with device:
        model: PreTrainedModel = AutoModelForCausalLM.from_config(few, dtype=torch.bfloat16)
    return model.eval()


def measure(
    config: Any,
    batch: int,
    drives: DriveOptions,
    known: StoredRates,
    clock: Clock = time.perf_counter,
    sample: Callable[[Any, int, torch.device], PreTrainedModel] = sample,
    device: torch.device = CPU,
) -> Here:
    """Measure by `clock` what `known` does not have, with the model on `device`. Raises as `plan_here`."""
    many = min(config.num_hidden_layers, _LAYERS)
    counts = sorted({max(1, many // 2), many})
    least = sample(config, counts[0], device)
    with open_drives(replace(drives, drives=1, format=True)) as opened:
        speed = opened.drives[0].speed
        refusal = ""
        try:
            attached = attach(least, opened, xcache=1.0)
        except UnsupportedError as error:
            refusal, attached = str(error), attach(least, opened)
        with attached:
            attention = attached.rates.attention(known, clock)
        digest = hashlib.sha256(config.to_json_string(use_diff=True).encode()).hexdigest()[:16]
        key = f"step | {stored_rates.fingerprint(device)} | {speed} | batch {batch} | {config.model_type} {digest}"
        dense = known.get(key, Line)
        if dense is None:
            times = _steps([least, *(sample(config, count, device) for count in counts[1:])], opened, batch, clock)
            dense = Line(0.0, times[0]) if counts == [1] else Line.through(*zip(counts, times, strict=True))
            known.put(key, dense)
    return Here(dense, attention, 0 if refusal else 2 * config.hidden_size, refusal, speed)


def _steps(models: list[PreTrainedModel], opened: DriveGroup, batch: int, clock: Clock) -> list[float]:
    """Seconds of each model's decode step behind SHORT tokens, the median of some. The models take turns."""
    ids = torch.ones(batch, SHORT, dtype=torch.int64, device=models[0].device)
    times: list[list[float]] = []
    with ExitStack() as stack, torch.no_grad():
        caches = [stack.enter_context(attach(model, opened)).cache() for model in models]
        for model, cache in zip(models, caches, strict=True):
            model(ids, past_key_values=cache, logits_to_keep=1)
        for _ in range(_STEPS):
            times.append([])
            for model, cache in zip(models, caches, strict=True):
                began = clock()
                model(ids[:, :1], past_key_values=cache, logits_to_keep=1).logits.argmax(-1).cpu()
                times[-1].append(clock() - began)
    return [statistics.median(found) for found in zip(*times, strict=True)]


def _share(asked: Asked, found: Here) -> tuple[float, str]:
    if not found.x_bytes:
        if asked.share:
            raise UnsupportedError(found.refusal)
        return 0.0, found.refusal
    best = choose(found.x_bytes, asked.shape.kv_bytes_per_token // asked.shape.layers, lambda: found.attention)
    if asked.share is None or asked.share == best.share:
        return best.share, best.reason
    return asked.share, f"asked for; {best.share:g} is faster: {best.reason}"


def _system(asked: Asked, found: Here, drives: DriveOptions) -> System:
    shape, rates = asked.shape, found.attention
    kv_layer = shape.kv_bytes_per_token / shape.layers
    folder = drives.folder or Path()
    projected = 4 * shape.hidden * shape.kv_heads * shape.head_dim
    weights = 2 * (shape.attention_weights + shape.ffn_weights * shape.active / shape.experts) / shape.layers
    device = torch.device(asked.device)
    measured = f"measured here: {stored_rates.fingerprint(device)}"
    return System(
        "here",
        torch.cuda.get_device_name(device) if device.type == "cuda" else stored_rates.processor(),
        _rate(projected, rates.project),
        _rate(weights, found.dense),
        _memory(device),
        _rate(found.x_bytes, rates.read),
        Drives(drives.target, _rate(kv_layer, rates.attend), float(shutil.disk_usage(folder).free), 0.0, found.speed),
        measured,
        shared=rates.shared,
    )


def _rate(each: float, line: Line) -> float:
    """So much per second for each unit of the line; 0 where the measurement saw no growth."""
    return each / line.each if line.each else 0.0


def _memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
