"""What a model can do and needs, for `config.resolve`."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from kvdrive.config.abilities import Ability, Part
from kvdrive.errors import UnsupportedError
from kvdrive.plugins.positions import why_not_removable
from kvdrive.plugins.probe import probe
from kvdrive.plugins.support import ON_DRIVES, decoder_config, layer_types, refusal


def traits_of(model: PreTrainedModel) -> Part:
    """`model` as a part of a run. Raises UnsupportedError where a probe finds other attention than the drive's."""
    try:
        found = probe(model)
    except UnsupportedError as error:
        raise refusal(model, error) from None
    config = decoder_config(model)
    reasons = {Ability.REMOVAL: why_not_removable(config), Ability.PARTS: _why_whole(config)}
    return Part(
        "model",
        type(model).__name__,
        frozenset(ability for ability, reason in reasons.items() if reason is None),
        {Ability.SINKS: "it has attention sinks"} if found.sinks else {},
        {ability: reason for ability, reason in reasons.items() if reason is not None},
    )


def _why_whole(config: Any) -> str | None:
    """Why a batch cannot be computed in parts; None if it can."""
    if set(layer_types(config)) != {ON_DRIVES}:
        return "some of its layers have no K and V on drives"
    if any(getattr(config, name, None) for name in ("num_local_experts", "num_experts", "n_routed_experts")):
        return "an expert's products depend on how many rows of a batch choose it"
    return None
