"""FATReLU: neurons whose activation is nearly zero count as zero, so that fewer of them are read.

The result is that of the model in memory with the same thresholds, and not that of the checkpoint: `kvdrive sparsify`
finds thresholds for a share of zeros, and measures what they cost.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from kvdrive import private
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.identity.parts import of_parts
from kvdrive.weights.manifest import Manifest
from kvdrive.weights.neurons import activation_of
from kvdrive.weights.options import EXACT

_FATRELU = "fatrelu:"


@dataclass(frozen=True)
class Cost:
    """Perplexity of held-out text `before` and `after`, and the share of the activations that are `zeros` then."""

    before: float
    after: float
    zeros: float

    @property
    def change(self) -> str:
        """Of the perplexity, as a share."""
        return f"{self.after / self.before - 1:+.1%}"

    def __str__(self) -> str:
        return f"perplexity {self.before:.3f} -> {self.after:.3f} ({self.change}) on held-out text"


@dataclass(frozen=True)
class Cuts:
    """`thresholds`: by feed-forward part; activations of a smaller magnitude count as zero. `cost`: None if unknown."""

    thresholds: dict[str, float]
    cost: Cost | None = None


def cuts_of(ffn: str, weights: Path, manifest: Manifest) -> Cuts | None:
    """The thresholds of `ffn` for this file of weights; None for "exact". Raises InputError."""
    if ffn == EXACT:
        return None
    if not manifest.neurons:
        raise InputError(f"`ffn={ffn}` is for dense models: {weights} holds experts")
    wanted = ffn.removeprefix(_FATRELU)
    if wanted == ffn:
        raise InputError(
            f"`ffn={ffn}`: write exact, predictor, or fatrelu with a threshold (fatrelu:0.02) or share (fatrelu:70%)"
        )
    if wanted.endswith("%"):
        found = read_cuts(weights, manifest).get(wanted)
        if found is None:
            raise InputError(f"no thresholds for {wanted} zeros: `kvdrive sparsify --shares {wanted}` finds them")
        return found
    try:
        threshold = float(wanted)
    except ValueError:
        threshold = -1.0
    if not 0 <= threshold < math.inf:
        raise InputError(f"`ffn={ffn}`: a threshold is 0 or more, as fatrelu:0.02")
    return Cuts({array.name: threshold for array in manifest.neurons})


def read_cuts(weights: Path, manifest: Manifest) -> dict[str, Cuts]:
    """What `kvdrive sparsify` has found for this model, by share; empty where it has not run. Raises InputError."""
    path = _place(weights)
    try:
        found = json.loads(path.read_text())
        if found["origin"] != origin_of(manifest):
            return {}
        shares: dict[str, Any] = found["shares"]
        return {share: Cuts(one["thresholds"], Cost(**one["cost"])) for share, one in shares.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged: remove it, and run `kvdrive sparsify` again") from error


def keep_cuts(weights: Path, manifest: Manifest, cuts: dict[str, Cuts]) -> Path:
    """Write thresholds beside the file of weights, with those of other shares. Returns their file."""
    path = _place(weights)
    shares = {share: asdict(one) for share, one in (read_cuts(weights, manifest) | cuts).items()}
    private.write_text(path, json.dumps({"origin": origin_of(manifest), "shares": shares}, indent=1) + "\n")
    return path


def install_cuts(model: PreTrainedModel, cuts: Cuts) -> list[Any]:
    """Let activations below the thresholds be zero, with weights on flash or in memory. Returns the hooks.

    Raises UnsupportedError.
    """
    modules = activations_of(model, list(cuts.thresholds))
    return [
        modules[name].register_forward_hook(partial(_hook, threshold)) for name, threshold in cuts.thresholds.items()
    ]


def activations_of(model: PreTrainedModel, names: Sequence[str]) -> dict[str, torch.nn.Module]:
    """The modules that compute the activations of these feed-forward parts.

    Raises UnsupportedError where several parts share one.
    """
    found = {name: activation_of(model.get_submodule(name)) for name in names}
    if len(set(found.values())) < len(found):
        raise UnsupportedError("layers of this model share their activation function: they can have no thresholds")
    return found


def cut(activations: torch.Tensor, threshold: float) -> torch.Tensor:
    """The activations; those of a smaller magnitude than the threshold are 0."""
    return torch.where(activations.abs() < threshold, 0, activations)


def _hook(threshold: float, module: torch.nn.Module, inputs: Any, activations: torch.Tensor) -> torch.Tensor:
    return cut(activations, threshold)


def origin_of(manifest: Manifest) -> str:
    """What identifies the checkpoint of a file of weights, in any format: its configuration and its numbers."""
    return of_parts({"config": manifest.config, "source": manifest.source}).hex()


def _place(weights: Path) -> Path:
    return weights.with_name(weights.name + ".fatrelu.json")
