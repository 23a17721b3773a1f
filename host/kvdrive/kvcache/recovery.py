"""Computing again: when drives fail, fill up or are late, and when the positions of a model are used up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from kvdrive import abi
from kvdrive.errors import KvdriveError, TargetError, UnsupportedError
from kvdrive.kvcache.backing import drop
from kvdrive.kvcache.batch import Batch
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.kvcache.history import Call, Crop, History
from kvdrive.kvcache.memory import MemoryLayer
from kvdrive.kvcache.overflow import Removal
from kvdrive.nvme.errors import CommandError

_LOST_DATA = (abi.NvmeStatus.UNRECOVERED_READ, abi.NvmeStatus.INTERNAL_ERROR)


class Recovery:
    """Computes tokens again with the own `forward` of a model that is on `model.device`.

    A method that raises has undone nothing: the batch has lost its tokens, or the caller undoes the call.
    """

    def __init__(self, forward: Callable[..., Any], model: PreTrainedModel) -> None:
        self._forward = forward
        self._model = model

    def catch_up(self, batch: Batch) -> None:
        """Call it before each call of the model: sends tokens of earlier calls again that a drive has refused, and
        moves the first group where tokens were removed in another process. Raises KvdriveError.
        """
        if not batch.part.lost and batch.transfers.refused:
            error = batch.transfers.send_again()
            if error:
                raise error
            batch.trim_to_stored()
        if batch.removed and batch.drive_layers[0].moved is None:
            self._move_first(batch)

    def survives(self, batch: Batch, error: KvdriveError) -> bool:
        """True if a call that failed with `error` may succeed now: sessions were evicted from a full drive, or the rows
        continue in memory, where they run, and are written to no drive.
        """
        return batch.send_again(error) or _runs_in_memory_alone(batch, error)

    def recompute(self, batch: Batch) -> None:
        """Compute the same K and V again, for the remaining drives. Raises KvdriveError."""
        history, in_prompt = batch.history, batch.part.in_prompt
        listener, batch.listener = batch.listener, None  # it knows what happened already
        if listener:
            listener.lost()
        batch.restart()
        batch.part.shared.backing.exclude_failed()
        batch.history = History()
        try:
            self._repeat(batch, history)
        finally:
            batch.history, batch.part.in_prompt, batch.listener = history, in_prompt, listener

    def compute_instead(self, batch: Batch) -> None:
        """A load is late: compute its tokens, and continue. The drives retain what they have. Raises KvdriveError."""
        batch.placement.stop()
        for view in batch.rows:
            if isinstance(view, MemoryLayer):
                view.empty_memory()
        batch.forget_others()
        self._repeat(batch, batch.history)

    def remove(self, batch: Batch, tokens: int) -> None:
        """Remove `tokens` tokens, whole groups, behind the first group.

        The first group is computed again, next to the rest. Raises UnsupportedError, CommandError, TargetError.
        """
        part, layers = batch.part, batch.drive_layers
        part.require_usable()
        batch.require_on_drives()
        if len({layer.stored for layer in layers} | {-layer.head_dim for layer in layers}) != 2:
            raise UnsupportedError("the layers' heads differ, so they have no groups of the same tokens to remove")
        if max(layer.tokens for layer in layers) > batch.length - batch.removed:
            batch.truncate(batch.length - batch.removed)  # the next calls compute what the drives have: it differs now
        group = part.group
        removed = range(group, group + tokens)
        if group + tokens > layers[0].stored // group * group:
            batch.write_all()
        batch.transfers.finish()
        if batch.listener:
            batch.listener.removes(tokens)
        batch.forget_file()
        try:
            for sequence in batch.sequences:
                sequence.remove(removed, layers[0].stored, len(layers))
        except Exception as error:
            part.lost = str(error)  # other drives or rows may have removed them
            raise
        batch.history.events.append(Removal(batch.length, tokens))
        batch.placement.remove(batch.rows, batch.sequences, removed)
        part.removed += tokens
        if batch.listener:
            batch.listener.removed_tokens(tokens)
        self._move_first(batch)

    def _move_first(self, batch: Batch) -> None:
        """Compute the first group at the positions next to the other tokens that are left.

        Otherwise each removal would take it further away from the rest than the model has ever seen. The drives have
        it at its old positions; the new K and V come along with each query, or are in memory with the rest.
        """
        ids = batch.token_ids()[:, : batch.part.group].to(self._model.device)
        positions = torch.arange(batch.removed, batch.removed + ids.shape[1], device=self._model.device)
        computed = DynamicCache()
        with torch.no_grad():
            self._forward(input_ids=ids, position_ids=positions[None], past_key_values=computed, logits_to_keep=1)
        for view, first in zip(batch.rows, computed.layers, strict=True):
            view.move_first(first.keys, first.values)

    def _repeat(self, batch: Batch, history: History) -> None:
        """Fill the batch with what `history` says. One that fails leaves a batch that has lost its tokens."""
        try:
            history.require_complete()
            with torch.no_grad():
                for event in history.events:
                    self._repeat_one(batch, event, history)
            batch.part.writeback.land()
        except BaseException as error:
            batch.part.lost = str(error) or type(error).__name__
            raise

    def _repeat_one(self, batch: Batch, event: Any, history: History) -> None:
        if isinstance(event, Call):
            batch.part.in_prompt = event.in_prompt
            arguments = event.arguments(batch.length, self._model.device)
            self._forward(**arguments, past_key_values=HfCache(batch), use_cache=True, logits_to_keep=1)
            if batch.history is not history:
                batch.history.events.append(event)
        elif isinstance(event, Crop):
            batch.crop(event.tokens)
        elif isinstance(event, Removal):
            self.remove(batch, event.tokens)
        else:
            batch.rearrange(event.rows)


def is_loss(error: Exception) -> bool:
    """True if the drive caused the error, not the request."""
    return isinstance(error, TargetError) or (isinstance(error, CommandError) and error.status in _LOST_DATA)


def _runs_in_memory_alone(batch: Batch, error: KvdriveError) -> bool:
    """The drives cannot store any more. True if the rows are in memory and continue there."""
    if not isinstance(error, CommandError) or error.opcode != abi.Opcode.KV_APPEND or not batch.sequences:
        return False
    try:
        batch.placement.finish()
    except KvdriveError:
        return False
    if not batch.placement.write_nothing():
        return False
    batch.transfers.abandon()
    rows = len(batch.sequences)
    if batch.listener is not None and batch.listener.runs_in_memory_alone(str(error)):
        batch.sequences.clear()
    drop(batch.sequences)
    batch.sequences.extend(DriveSequence([]) for _ in range(rows))
    return True
