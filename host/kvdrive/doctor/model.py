"""What a drive would hold for one checkpoint. Only its configuration is read, not its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import shape_of
from kvdrive.plugins.support import config_reason
from kvdrive.weights.modes import Modes, modes_of


@dataclass(frozen=True)
class ModelRow:
    """`tokens_that_fit`: of one sequence, on a disk with the given space; never more than `positions`.

    `group`: query heads per KV head. `refused` says why a drive cannot serve the model, None where nothing in the
    configuration speaks against it; `attach` probes the model itself.
    """

    name: str
    family: str
    group: int
    head_dim: int
    layers_on_drive: int
    layers_in_memory: int
    bytes_per_token: int
    positions: int | None
    tokens_that_fit: int | None
    refused: str | None

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.refused:
            return f"refused: {self.refused}; run it with transformers alone"
        if not self.layers_on_drive:
            return "runs, but needs no drive: its cache does not grow with the context"
        return "served"


def row_of(name: str, config: Any, free_bytes: int) -> ModelRow:
    """The row of a decoder's configuration. `free_bytes`: space for the drive's file."""
    reason = config_reason(config)
    shape = shape_of(config) if hasattr(config, "num_attention_heads") else None
    positions = getattr(config, "max_position_embeddings", None)
    per_token = shape.bytes_per_token if shape else 0
    fits = [] if positions is None else [positions]
    if per_token:
        fits.append(free_bytes // per_token)
    return ModelRow(
        name=name,
        family=config.model_type,
        group=shape.query_heads // shape.kv_heads if shape else 0,
        head_dim=shape.head_dim if shape else 0,
        layers_on_drive=shape.drive_layers if shape else 0,
        layers_in_memory=config.num_hidden_layers - (shape.drive_layers if shape else 0),
        bytes_per_token=per_token,
        positions=positions,
        tokens_that_fit=min(fits, default=None),
        refused=reason,
    )


def weights_of(config: Any) -> Modes | None:
    """The memory for the weights of a decoder; None where transformers cannot make a decoder of the configuration."""
    try:
        return modes_of(config)
    except Exception:  # any kind of error, from the code of many families
        return None


def read_config(path: Path) -> Any:
    """The decoder's configuration in a checkpoint folder or GGUF file. Raises InputError."""
    return checkpoints.read_config(path).get_text_config(decoder=True)
