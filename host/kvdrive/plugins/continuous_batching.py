"""Decode steps of several sequences in one call of a model (continuous batching)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from kvdrive.errors import TargetError
from kvdrive.kvcache.batch import Batch
from kvdrive.kvcache.mini_batches import MiniBatches
from kvdrive.kvcache.parts import RowsOf
from kvdrive.kvcache.xcache.projections import LENGTH_DEPENDENT
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.call import Calls
from kvdrive.plugins.forward import Forward
from kvdrive.plugins.positions import rotary_kinds
from kvdrive.plugins.support import decoder_config


class ContinuousBatching:
    """Shares calls of `model`. `calls`: its other calls."""

    def __init__(self, model: PreTrainedModel, forward: Forward, calls: Calls, schedule: MiniBatches) -> None:
        self._model = model
        self._forward = forward
        self._calls = calls
        self._schedule = schedule

    def refusal(self, batch: Batch) -> str | None:
        """The reason why the sequence of `batch` cannot share a call with others; None if it can."""
        if not batch.is_on_drives:
            return "its K and V, or some of them, are on the host alone"
        if "position_ids" not in self._forward.signature.parameters:
            return "the model takes no positions"
        if rotary_kinds(decoder_config(self._model)) & set(LENGTH_DEPENDENT):
            return "the model's rotary positions depend on the longest sequence of a call"
        return None

    def step(self, batches: Sequence[Batch], ids: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """See Attachment.step_together."""
        for row, batch in enumerate(batches):
            self._calls.begin(batch, {"input_ids": ids[row : row + 1, None]})
        lengths = [batch.length for batch in batches]
        parts: list[RowsOf] = [(slice(row, row + 1), batch.rows) for row, batch in enumerate(batches)]
        column = ids.to(self._model.device)[:, None]
        positions = torch.tensor(lengths, device=column.device)[:, None]

        def run(past: Cache) -> Any:
            return self._forward.own(input_ids=column, position_ids=positions, past_key_values=past, use_cache=True)

        try:
            with torch.no_grad():
                logits = self._schedule.run_joined(batches, parts, run).logits
        except BaseException:
            for batch, length in zip(batches, lengths, strict=True):
                _undo(batch, length)
            raise
        failed = []
        for row, batch in enumerate(batches):
            try:
                batch.called({"input_ids": column[row : row + 1], "position_ids": positions[row : row + 1]})
            except (CommandError, TargetError):
                _undo(batch, lengths[row])
                failed.append(row)
        return logits[:, -1].float().cpu(), failed


def _undo(batch: Batch, length: int) -> None:
    """An append that failed is remembered: the row's next call, which is alone, raises its error and can repair."""
    failed = batch.transfers.failed()
    batch.undo(length)
    if failed:
        batch.transfers.add(0, failed)
