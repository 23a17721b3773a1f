"""Training of predictors: a balanced loss for each layer, until text that they were not trained on says stop."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from kvdrive.weights.calibrate import OnStep, Tokens, nats_of, perplexity
from kvdrive.weights.cuts import Cost, Cuts, activations_of, install_cuts
from kvdrive.weights.predictor import Errors, Predictor, Predictors, first_of, install_predictors

_BATCH = 128  # tokens


@dataclass(frozen=True)
class Training:
    """`rank` of each layer. It ends after `epochs`, or `patience` epochs in which the held-out loss did not fall."""

    rank: int = 128
    epochs: int = 60
    patience: int = 4
    rate: float = 2e-3


@dataclass(frozen=True)
class Seen:
    """What a feed-forward part saw and used, on the cpu: `inputs` [tokens, h], `used` bool [tokens, neurons]."""

    inputs: torch.Tensor
    used: torch.Tensor


def watch(
    model: PreTrainedModel,
    names: Sequence[str],
    windows: Sequence[Tokens],
    on_window: OnStep,
) -> dict[str, Seen]:
    """What the feed-forward parts `names` see in windows of tokens. Raises UnsupportedError."""
    inputs: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    used: dict[str, list[torch.Tensor]] = {name: [] for name in names}

    def keep_inputs(name: str) -> Any:
        def hook(module: torch.nn.Module, given: Any) -> None:
            inputs[name].append(given[0].reshape(-1, given[0].shape[-1]).detach().to("cpu", copy=True))

        return hook

    def keep_used(name: str) -> Any:
        def hook(module: torch.nn.Module, given: Any, activations: torch.Tensor) -> None:
            used[name].append((activations.reshape(-1, activations.shape[-1]) != 0).cpu())

        return hook

    with ExitStack() as hooks:
        for name, module in activations_of(model, names).items():
            first = first_of(model.get_submodule(name))
            hooks.callback(first.register_forward_pre_hook(keep_inputs(name)).remove)
            hooks.callback(module.register_forward_hook(keep_used(name)).remove)
        for window in windows:
            nats_of(model, window)
            on_window()
    return {name: Seen(torch.cat(inputs[name]), torch.cat(used[name])) for name in names}


def train(learned: Seen, held_out: Seen, how: Training) -> tuple[Predictor, Errors]:
    """A predictor for one feed-forward part, the one with the least loss on `held_out`."""
    random = torch.Generator().manual_seed(1)
    width, neurons = learned.inputs.shape[1], learned.used.shape[1]
    scale = float(learned.inputs.float().square().mean().sqrt().clamp(min=1e-12))
    narrow = torch.nn.Parameter(torch.randn(how.rank, width, generator=random) / width**0.5)
    wide = torch.nn.Parameter(torch.randn(neurons, how.rank, generator=random) / how.rank**0.5)
    bias = torch.nn.Parameter(torch.zeros(neurons))
    share = learned.used.float().mean().clamp(1e-3, 1 - 1e-3)
    balance = (1 - share) / share  # both kinds of neurons weigh the same
    optimiser = torch.optim.Adam([narrow, wide, bias], lr=how.rate)

    def loss(seen: Seen, rows: torch.Tensor | slice) -> torch.Tensor:
        logits = (seen.inputs[rows].float() / scale @ narrow.T) @ wide.T + bias
        wanted = seen.used[rows].float()
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, pos_weight=balance)

    best, least, epochs, since = copy.deepcopy((narrow, wide, bias)), float("inf"), 0, 0
    while epochs < how.epochs and since < how.patience:
        for rows in torch.randperm(len(learned.inputs), generator=random).split(_BATCH):
            optimiser.zero_grad()
            loss(learned, rows).backward()
            optimiser.step()
        epochs += 1
        since += 1
        with torch.no_grad():
            found = float(loss(held_out, slice(None)))
        if found < least:
            best, least, since = copy.deepcopy((narrow, wide, bias)), found, 0
    made = Predictor(best[0].detach() / scale, best[1].detach(), best[2].detach())
    return made, errors_of(made, held_out, epochs)


def errors_of(predictor: Predictor, seen: Seen, epochs: int = 0) -> Errors:
    """How often the predictor is wrong about `seen`."""
    foreseen = predictor.foreseen(seen.inputs)
    missed = (seen.used & ~foreseen).sum() / seen.used.sum().clamp(min=1)
    needless = (foreseen & ~seen.used).sum() / (~seen.used).sum().clamp(min=1)
    shares = [float(one.float().mean()) for one in (seen.used, foreseen)]
    return Errors(shares[0], shares[1], float(missed), float(needless), epochs)


@dataclass(frozen=True)
class Text:
    """Windows of tokens: to learn from, to stop early by, and to measure perplexity with."""

    learned: Sequence[Tokens]
    held_out: Sequence[Tokens]
    rated: Sequence[Tokens]

    @classmethod
    def of(cls, windows: Sequence[Tokens]) -> Text:
        """A quarter of the windows each for the last two, at least one."""
        quarter = max(1, len(windows) // 4)
        return cls(windows[2 * quarter :], windows[:quarter], windows[quarter : 2 * quarter])


def make_predictors(
    model: PreTrainedModel, names: Sequence[str], text: Text, cuts: Cuts | None, how: Training, on_step: OnStep
) -> Predictors:
    """Predictors for the feed-forward parts `names` of a model whose gates are in memory.

    `cuts`: what counts as zero for the training. `on_step` is called once for each window, layer, and again for each
    rated window. Raises UnsupportedError.
    """
    before = perplexity(model, text.rated, on_step)
    hooks = install_cuts(model, cuts) if cuts else []
    learned, held_out = (watch(model, names, windows, on_step) for windows in (text.learned, text.held_out))
    for hook in hooks:
        hook.remove()
    parts, errors = {}, {}
    for name in names:
        parts[name], errors[name] = train(learned.pop(name), held_out.pop(name), how)
        on_step()
    zeros = 1 - sum(one.foreseen for one in errors.values()) / len(errors)
    made = Predictors(parts, errors, Cost(before, before, zeros))
    hooks = install_predictors(model, made)
    after = perplexity(model, text.rated, on_step)
    for hook in hooks:
        hook.remove()
    return replace(made, cost=Cost(before, after, zeros))
