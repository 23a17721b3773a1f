"""Decode steps of several sequences in one call of the model (continuous batching)."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature
from typing import Any

import torch
from transformers import PreTrainedModel

from kvdrive.kvcache.base import AttachedCache
from kvdrive.kvcache.cache import DriveCache
from kvdrive.kvcache.joined import JoinedCache
from kvdrive.plugins.support import decoder_config

_SHARED_POSITIONS = ("dynamic", "longrope")  # rotary tables that depend on the longest sequence of a call


def refusal(model: PreTrainedModel, signature: Signature, cache: AttachedCache) -> str | None:
    """The reason why the sequence of `cache` cannot share a call of `model` with others; None if it can."""
    if not in_parts(cache):
        return "its K and V, or some of them, are on the host alone"
    if "position_ids" not in signature.parameters:
        return "the model takes no positions"
    if _rope_types(model) & set(_SHARED_POSITIONS):
        return "the model's rotary positions depend on the longest sequence of a call"
    return None


def in_parts(cache: AttachedCache) -> bool:
    """True if a prompt may be computed by several calls: every layer can go on behind the tokens that it holds."""
    return isinstance(cache, DriveCache) and len(cache.drive_layers) == len(cache.layers)


def step(forward: Callable[..., Any], caches: list[DriveCache], ids: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """See `Attachment.step_together`."""
    joined = JoinedCache(caches)
    column = ids[:, None]
    positions = torch.tensor(joined.lengths, device=ids.device)[:, None]
    try:
        with torch.no_grad():
            logits = forward(input_ids=column, position_ids=positions, past_key_values=joined, use_cache=True).logits
    except BaseException:
        joined.undo()
        raise
    return logits[:, -1].float().cpu(), joined.called(column, positions)


def _rope_types(model: PreTrainedModel) -> set[str]:
    """The kinds of rotary positions in the decoder's configuration, which may be one or one for each type of layer."""
    rope = getattr(decoder_config(model), "rope_parameters", None) or {}
    several = [rope, *(one for one in rope.values() if isinstance(one, dict))]
    return {str(one.get("rope_type", "default")) for one in several}
