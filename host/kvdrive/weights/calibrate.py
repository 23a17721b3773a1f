"""Thresholds for FATReLU that make a share of the activations zero, and what they cost in perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from kvdrive.weights.cuts import Cost, Cuts, activations_of, cut

Tokens = NDArray[np.int64]
OnStep = Callable[[], None]
_SAMPLES = 1 << 16  # activations of a layer and window from which a threshold is estimated


def calibrate(
    model: PreTrainedModel,
    names: Sequence[str],
    shares: Sequence[Fraction],
    learned: Sequence[Tokens],
    rated: Sequence[Tokens],
    on_window: OnStep,
) -> list[Cuts]:
    """The thresholds of the feed-forward parts `names` for each share of zeros, from the windows of tokens `learned`.

    Perplexities are those of the windows `rated`. Each layer gets the same share. `on_window` is called
    len(learned) + (1 + len(shares)) * len(rated) times. Raises UnsupportedError.
    """
    modules = activations_of(model, names)
    samples: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    random = torch.Generator().manual_seed(1)

    def keep(name: str) -> Any:
        def hook(module: torch.nn.Module, inputs: Any, activations: torch.Tensor) -> None:
            flat = activations.detach().reshape(-1)
            chosen = torch.randint(len(flat), (_SAMPLES,), generator=random)
            samples[name].append(flat[chosen].float().abs())

        return hook

    with ExitStack() as hooks:
        for name, module in modules.items():
            hooks.callback(module.register_forward_hook(keep(name)).remove)
        for window in learned:
            nats_of(model, window)
            on_window()
    ordered = {name: torch.cat(found).sort().values for name, found in samples.items()}
    before, _ = _rate(model, modules, {}, rated, on_window)
    cuts = []
    for share in shares:
        thresholds = {name: float(found[int(share * len(found)) - 1]) for name, found in ordered.items()}
        after, zeros = _rate(model, modules, thresholds, rated, on_window)
        cuts.append(Cuts(thresholds, Cost(before, after, zeros)))
    return cuts


def _rate(
    model: PreTrainedModel,
    modules: dict[str, torch.nn.Module],
    thresholds: dict[str, float],
    windows: Sequence[Tokens],
    on_window: OnStep,
) -> tuple[float, float]:
    """Perplexity of windows with these thresholds, and the share of activations that are zero."""
    zeros = total = 0

    def counted(threshold: float) -> Any:
        def hook(module: torch.nn.Module, inputs: Any, activations: torch.Tensor) -> torch.Tensor:
            nonlocal zeros, total
            found = cut(activations, threshold)
            zeros += int((found == 0).sum())
            total += found.numel()
            return found

        return hook

    with ExitStack() as hooks:
        for name, module in modules.items():
            hooks.callback(module.register_forward_hook(counted(thresholds.get(name, 0.0))).remove)
        found = perplexity(model, windows, on_window)
    return found, zeros / max(1, total)


def perplexity(model: PreTrainedModel, windows: Sequence[Tokens], on_window: OnStep) -> float:
    """That of all tokens of the windows but the first of each."""
    nats = []
    for window in windows:
        nats.append(nats_of(model, window))
        on_window()
    return math.exp(torch.cat(nats).mean())


def nats_of(model: PreTrainedModel, window: Tokens) -> torch.Tensor:
    """Negative log likelihoods of the tokens of a window behind its first one, float64."""
    ids = torch.from_numpy(window).to(model.device)
    with torch.no_grad():
        logits = model(ids[None]).logits[0, :-1].double()
    return torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")
