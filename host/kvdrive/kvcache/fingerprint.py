"""A hash that identifies the model that computed K and V: weights, precision, shape and positions."""

from __future__ import annotations

import hashlib
import json

import torch
from transformers import PreTrainedModel

from kvdrive.kvcache.shipped_scales import plain, scales_of
from kvdrive.nvme.wire import RowFormat

_LAYOUT = "kvdrive sessions 1"  # change this text when the content of a session changes
_CONFIG = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "partial_rotary_factor",
    "rope_parameters",
    "rope_theta",
    "rope_scaling",
    "sliding_window",
    "layer_types",
)


def fingerprint(model: PreTrainedModel, stored_as: RowFormat = RowFormat.BINARY16) -> bytes:
    """SHA-256 of all weights, their precision and what else K and V depend on: 32 bytes. Reads every weight once.

    `stored_as`: the format to which K and V were rounded, with the scales that the checkpoint ships for it. Raises
    InputError for scales that cannot be used.
    """
    config = model.config.get_text_config(decoder=True)
    digest = hashlib.sha256(_LAYOUT.encode())
    if stored_as != RowFormat.BINARY16:
        digest.update(f"K and V in {stored_as.name}".encode())
    if scales := scales_of(model, stored_as):
        digest.update(f"divided by {plain(scales)}".encode())
    digest.update(json.dumps({name: getattr(config, name, None) for name in _CONFIG}, default=str).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.digest()
