"""From which checkpoint, and with which inexact ways to compute, weights on flash come."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from kvdrive.errors import InputError
from kvdrive.weights import fingerprint
from kvdrive.weights.cuts import Cuts
from kvdrive.weights.manifest import Manifest
from kvdrive.weights.predictor import Predictors
from kvdrive.weights.reader import Reader


def mark_origin(model: PreTrainedModel, manifest: Manifest, cuts: Cuts | None, predictors: Predictors | None) -> None:
    """Make what is on flash a part of the model's fingerprint: sessions of other numbers are not found then."""
    origin = hashlib.sha256(manifest.to_bytes())  # checkpoint and formats
    origin.update(json.dumps(cuts.thresholds, sort_keys=True).encode() if cuts else b"")
    origin.update(predictors.digest if predictors else b"")
    model.register_buffer("weights_on_flash", torch.tensor(list(origin.digest()), dtype=torch.uint8))


def check_origin(weights: Reader, config: Any, checkpoint: Path) -> None:
    """Raises InputError when the file was not made from this checkpoint. Its own weights may have been deleted."""
    source = fingerprint.of_source(checkpoint)
    manifest = weights.manifest
    if fingerprint.of_config(config) != manifest.config or source not in ("", manifest.source):
        raise InputError(
            f"{weights.path} was made from another checkpoint than {checkpoint}: convert this one, to another place"
        )
