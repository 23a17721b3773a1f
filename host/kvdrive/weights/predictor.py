"""Low-rank predictors: which neurons of a layer a token uses, from the input of the layer's feed-forward part.

A neuron that is not foreseen counts as zero, so nothing of it is read, its gate neither. Wrong guesses in this
direction change the result; `kvdrive train-predictor` measures how often they happen and what they cost.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from transformers import PreTrainedModel

from kvdrive import private
from kvdrive.errors import InputError
from kvdrive.weights.cuts import Cost, activations_of, origin_of
from kvdrive.weights.manifest import Manifest

_PARTS = ("narrow", "wide", "bias")


@dataclass(frozen=True)
class Predictor:
    """Of one feed-forward part, float32: `narrow` [rank, h], `wide` [neurons, rank], `bias` [neurons]."""

    narrow: torch.Tensor
    wide: torch.Tensor
    bias: torch.Tensor

    def to(self, device: torch.device) -> Predictor:
        """The predictor on this device."""
        return Predictor(self.narrow.to(device), self.wide.to(device), self.bias.to(device))

    def foreseen(self, inputs: torch.Tensor) -> torch.Tensor:
        """inputs [..., h] -> bool [..., neurons]."""
        return (inputs.float() @ self.narrow.T) @ self.wide.T + self.bias > 0


@dataclass(frozen=True)
class Errors:
    """Of a layer on held-out text: `missed` is the share of the used neurons that were not foreseen, `needless` the
    share of the others that were. `used` and `foreseen` are shares of all; `epochs`: of the training."""

    used: float
    foreseen: float
    missed: float
    needless: float
    epochs: int


@dataclass(frozen=True)
class Predictors:
    """By feed-forward part: the predictors, and how often they are wrong."""

    parts: dict[str, Predictor]
    errors: dict[str, Errors]
    cost: Cost

    @property
    def digest(self) -> bytes:
        """SHA-256 of their numbers."""
        found = hashlib.sha256()
        for name in sorted(self.parts):
            for part in _PARTS:
                found.update(getattr(self.parts[name], part).contiguous().numpy().tobytes())
        return found.digest()

    @property
    def bytes(self) -> int:
        """Their memory."""
        return sum(tensor.nbytes for one in self.parts.values() for tensor in vars(one).values())


def keep_predictors(weights: Path, manifest: Manifest, predictors: Predictors) -> Path:
    """Write predictors beside the file of weights. Returns their file."""
    path = _place(weights)
    tensors = {f"{name}.{part}": getattr(one, part) for name, one in predictors.parts.items() for part in _PARTS}
    errors = {name: asdict(one) for name, one in predictors.errors.items()}
    numbers = {"cost": asdict(predictors.cost), "errors": errors}
    content = save(tensors, {"origin": origin_of(manifest), "measured": json.dumps(numbers)})
    private.write_bytes(path, content)
    return path


def read_predictors(weights: Path, manifest: Manifest) -> Predictors:
    """The predictors beside a file of weights. Raises InputError if there are none for this model."""
    path = _place(weights)
    try:
        with safe_open(path, "pt") as file:
            kept = file.metadata()
            if kept["origin"] != origin_of(manifest):
                raise InputError(f"{path} is of another checkpoint: run `kvdrive train-predictor` again")
            numbers = json.loads(kept["measured"])
            parts = {
                array.name: Predictor(*(file.get_tensor(f"{array.name}.{part}") for part in _PARTS))
                for array in manifest.neurons
            }
        errors = {name: Errors(**one) for name, one in numbers["errors"].items()}
        return Predictors(parts, errors, Cost(**numbers["cost"]))
    except FileNotFoundError as error:
        raise InputError(f"there are no predictors in {path}: `kvdrive train-predictor` makes them") from error
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged: run `kvdrive train-predictor` again") from error


def install_predictors(model: PreTrainedModel, predictors: Predictors) -> list[Any]:
    """Let the activations that are not foreseen be zero, in a model whose gates are in memory. Returns the hooks.

    Raises UnsupportedError.
    """
    hooks = []
    for name, module in activations_of(model, list(predictors.parts)).items():
        seen: list[torch.Tensor] = []
        one = predictors.parts[name].to(model.device)

        def before(module: torch.nn.Module, inputs: Any, seen: list[torch.Tensor] = seen) -> None:
            seen[:] = [inputs[0]]

        def after(
            module: torch.nn.Module,
            inputs: Any,
            activations: torch.Tensor,
            one: Predictor = one,
            seen: list[torch.Tensor] = seen,
        ) -> torch.Tensor:
            return activations * one.foreseen(seen.pop())

        hooks.append(first_of(model.get_submodule(name)).register_forward_pre_hook(before))
        hooks.append(module.register_forward_hook(after))
    return hooks


def first_of(module: torch.nn.Module) -> torch.nn.Module:
    """The matrix of a feed-forward part whose results go to the activation function."""
    found: torch.nn.Module = getattr(module, "gate_proj", None) or module.get_submodule("fc1")
    return found


def _place(weights: Path) -> Path:
    return weights.with_name(weights.name + ".predictor")
