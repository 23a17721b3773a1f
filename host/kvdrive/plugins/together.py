"""Decode steps of several sequences in one call of a model (continuous batching)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from kvdrive.kvcache.batch import Batch
from kvdrive.kvcache.joined import JoinedStep
from kvdrive.kvcache.mini_batches import MiniBatches
from kvdrive.plugins.call import Calls
from kvdrive.plugins.forward import Forward
from kvdrive.plugins.support import decoder_config

_SHARED_POSITIONS = ("dynamic", "longrope")  # rotary tables that depend on the longest sequence of a call


class Together:
    """Shares calls of `model`. `calls`: its other calls."""

    def __init__(self, model: PreTrainedModel, forward: Forward, calls: Calls, schedule: MiniBatches) -> None:
        self._model = model
        self._forward = forward
        self._calls = calls
        self._schedule = schedule

    def refusal(self, batch: Batch) -> str | None:
        """The reason why the sequence of `batch` cannot share a call with others; None if it can."""
        if not in_parts(batch):
            return "its K and V, or some of them, are on the host alone"
        if "position_ids" not in self._forward.signature.parameters:
            return "the model takes no positions"
        if _rope_types(self._model) & set(_SHARED_POSITIONS):
            return "the model's rotary positions depend on the longest sequence of a call"
        return None

    def step(self, batches: Sequence[Batch], ids: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        for row, batch in enumerate(batches):
            self._calls.begin(batch, {"input_ids": ids[row : row + 1, None]})
        step = JoinedStep(batches)
        column = ids.to(self._model.device)[:, None]
        positions = torch.tensor(step.lengths, device=column.device)[:, None]

        def run(past: Cache) -> Any:
            return self._forward.own(input_ids=column, position_ids=positions, past_key_values=past, use_cache=True)

        try:
            with torch.no_grad():
                logits = self._schedule.run_joined(batches, step.parts, run).logits
        except BaseException:
            step.undo()
            raise
        return logits[:, -1].float().cpu(), step.called(column, positions)


def in_parts(batch: Batch) -> bool:
    """True if a prompt may be computed by several calls: every layer can go on behind the tokens that it holds."""
    return len(batch.rows) == len(batch.layers)


def _rope_types(model: PreTrainedModel) -> set[str]:
    """The kinds of rotary positions in the decoder's configuration, which may be one or one for each type of layer."""
    rope: dict[str, Any] = getattr(decoder_config(model), "rope_parameters", None) or {}
    several = [rope, *(one for one in rope.values() if isinstance(one, dict))]
    return {str(one.get("rope_type", "default")) for one in several}
