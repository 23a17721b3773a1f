"""Tells if tokens can be removed from the middle of a sequence: scores must depend on differences of positions only."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from kvdrive.kvcache.xcache.projections import LENGTH_DEPENDENT
from kvdrive.plugins.support import ON_DRIVES, decoder_config, layer_types


def positions_of(model: PreTrainedModel) -> int | None:
    """The tokens that a model can tell apart; None if its configuration names no limit."""
    found = getattr(decoder_config(model), "max_position_embeddings", None)
    return int(found) if found else None


def why_not_removable(config: Any) -> str | None:
    """Why the rest would be wrong if tokens in the middle of a sequence were removed; None if it would not."""
    kinds = rotary_kinds(config)
    if not kinds:
        return "its positions are not rotary, so the tokens that remain would have wrong ones"
    if changing := sorted(kinds & set(LENGTH_DEPENDENT)):
        return f"its rotary positions ({', '.join(changing)}) depend on the length of the sequence"
    if set(layer_types(config)) != {ON_DRIVES}:
        return "some of its layers stay in memory, and keep what the drives would remove"
    return None


def rotary_kinds(config: Any) -> set[str]:
    """Kinds of the model's rotary tables, in transformers' terms; empty if it has none."""
    parameters = getattr(config, "rope_parameters", None) or {}
    tables = [one for one in parameters.values() if isinstance(one, dict)] or [parameters]
    return {one["rope_type"] for one in tables if "rope_type" in one}
