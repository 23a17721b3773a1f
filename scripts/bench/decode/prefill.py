"""Time to the first token with and without K and V on their way to the drive."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from bench.decode.contenders import sibling
from bench.decode.random_models import SEED
from bench.setup import Setup
from kvdrive.plugins.transformers import attach
from kvdrive.targets.opening import open_drives
from kvdrive.targets.options import DriveOptions


@dataclass
class Prefill:
    """Time to the first token of a prompt with K and V into the drive (`drive`) and into memory (`stock`), seconds."""

    model: str
    tokens: int
    stock: list[float] = field(default_factory=list)
    drive: list[float] = field(default_factory=list)

    @property
    def overhead(self) -> float:
        """Median over the rounds of drive / stock - 1."""
        return statistics.median(d / s for d, s in zip(self.drive, self.stock, strict=True)) - 1

    def __str__(self) -> str:
        return f"{self.overhead:+.1%} ({self.model}, {self.tokens:,} tokens)"


def measure_prefill(setup: Setup, name: str, model: PreTrainedModel, folder: Path, target: str = "emulator") -> Prefill:
    """Prefills with and without the drive, alternating, after one warm-up. Short prefills run several times a round."""
    tokens, rounds, least = setup.size((2048, 5, 4.0), (64, 1, 0.0))  # `least`: seconds of a round
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(1, model.config.vocab_size, (1, tokens), generator=generator)
    result, own = Prefill(name, tokens), sibling(model)
    options = DriveOptions("fast", "", setup.threads, 8 << 30, folder / "prefill", target=target)
    with open_drives(options) as drives, attach(own, drives) as attachment, torch.no_grad():

        def stock() -> float:
            return _prefill(model, ids, DynamicCache())

        def drive() -> float:
            return _prefill(own, ids, attachment.cache())

        pairs = max(1, math.ceil(least / (stock() + drive())))
        for _ in range(rounds):
            for _ in range(pairs):
                result.stock.append(stock())
                result.drive.append(drive())
    return result


def _prefill(model: PreTrainedModel, ids: torch.Tensor, cache: Cache) -> float:
    start = time.perf_counter()
    model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return time.perf_counter() - start
