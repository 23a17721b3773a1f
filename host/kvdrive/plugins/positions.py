"""Tells if tokens can be removed from the middle of a sequence: scores must depend on differences of positions only."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from kvdrive.errors import UnsupportedError
from kvdrive.plugins.support import ON_DRIVES, decoder_config, layer_types

_OF_LENGTH = ("dynamic", "longrope")  # kinds of rotary tables that change with the length of the sequence


def positions_of(model: PreTrainedModel) -> int | None:
    """The tokens that a model can tell apart; None if its configuration names no limit."""
    found = getattr(decoder_config(model), "max_position_embeddings", None)
    return int(found) if found else None


def require_removable(model: PreTrainedModel) -> None:
    """Raises UnsupportedError unless the rest stays valid when tokens in the middle of a sequence are removed."""
    config = decoder_config(model)
    reason = None
    kinds = _rotary_kinds(config)
    if not kinds:
        reason = "its positions are not rotary, so the tokens that remain would have wrong ones"
    elif changing := sorted(kinds & set(_OF_LENGTH)):
        reason = f"its rotary positions ({', '.join(changing)}) depend on the length of the sequence"
    elif set(layer_types(config)) != {ON_DRIVES}:
        reason = "some of its layers stay in memory, and keep what the drives would remove"
    if reason:
        raise UnsupportedError(f"{type(model).__name__} cannot lose tokens: {reason}; take overflow 'error'")


def _rotary_kinds(config: Any) -> set[str]:
    """Kinds of the model's rotary tables, in transformers' terms; empty if it has none."""
    parameters = getattr(config, "rope_parameters", None) or {}
    tables = [one for one in parameters.values() if isinstance(one, dict)] or [parameters]
    return {one["rope_type"] for one in tables if "rope_type" in one}
