"""Decode steps of several sequences in one call of a model (continuous batching).

Each token is a row of the call, also where a sequence has several, some of them drafted. So the model masks nothing and
pads nothing; a sequence's tokens are put together where its K and V are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
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

    def step(self, batches: Sequence[Batch], ids: Sequence[Sequence[int]]) -> tuple[torch.Tensor, list[int]]:
        """See Attachment.step_together."""
        for batch, own in zip(batches, ids, strict=True):
            self._calls.begin(batch, {"input_ids": torch.tensor([list(own)])})
        lengths = [batch.length for batch in batches]
        rows = [slice(*ends) for ends in pairwise(accumulate(map(len, ids), initial=0))]
        parts: list[RowsOf] = [(own, batch.rows) for own, batch in zip(rows, batches, strict=True)]
        column = torch.tensor([token for own in ids for token in own], device=self._model.device)[:, None]
        places = [length + place for length, own in zip(lengths, ids, strict=True) for place in range(len(own))]
        positions = torch.tensor(places, device=column.device)[:, None]

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
        for number, (batch, tokens) in enumerate(zip(batches, rows, strict=True)):
            batch.part.unverified = tokens.stop - tokens.start - 1
            try:
                batch.called({"input_ids": column[tokens].T, "position_ids": positions[tokens].T})
            except (CommandError, TargetError):
                _undo(batch, lengths[number])
                failed.append(number)
        return logits[:, -1].float().cpu(), failed


def _undo(batch: Batch, length: int) -> None:
    """An append that failed is remembered: the row's next call, which is alone, raises its error and can repair."""
    failed = batch.transfers.failed()
    batch.part.unverified = 0
    batch.undo(length)
    if failed:
        batch.transfers.add(0, failed)
