"""What a checkpoint has beside weights on flash: precision, tokenizer, and the settings of its generation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig

from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.weights.formats import DTYPES
from kvdrive.weights.manifest import Manifest

if TYPE_CHECKING:
    from kvdrive.weights.drive_model import DriveModel
    from kvdrive.weights.loading import FlashWeights
    from kvdrive.weights.sparse import SparseWeights
    from kvdrive.weights.stream.model import StreamedWeights


@dataclass(frozen=True)
class Named:
    """What the user called a checkpoint, and where it is."""

    name: str
    path: Path


def computed_in(manifest: Manifest, config: Any, dtype: str) -> torch.dtype:
    """The precision of the computation; "auto": the configuration's, or that of what is stored."""
    if dtype != "auto":
        return DTYPES[dtype]
    stored = next(part.format for array in manifest.arrays for part in array.parts if part.format in DTYPES)
    return getattr(config, "dtype", None) or DTYPES[stored]


def complete(checkpoint: Named, found: FlashWeights | SparseWeights | DriveModel | StreamedWeights) -> Checkpoint:
    """The checkpoint with its model, whose weights `found` reads. Raises InputError."""
    path = checkpoint.path
    if (path / "generation_config.json").is_file():
        found.model.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
    return Checkpoint(checkpoint.name, path, found.model, checkpoints.read_tokenizer(path), found)
