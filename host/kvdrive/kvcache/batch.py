"""A batch: one sequence for each row, in all layers of a model. Rows may be padded on the left; beams share tokens."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Sequence as Several
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, LinearAttentionCacheLayerMixin

from kvdrive import abi
from kvdrive.errors import KvdriveError, UnsupportedError
from kvdrive.kvcache.backing import drop
from kvdrive.kvcache.calls import LayersInMemory
from kvdrive.kvcache.history import Call, Crop, History, Rearrange
from kvdrive.kvcache.layer import StoredLayer
from kvdrive.kvcache.listener import Listener
from kvdrive.kvcache.overflow import Removal
from kvdrive.kvcache.part import Part, Shared
from kvdrive.kvcache.placement import Placement, RowsLayer
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.slices import gather
from kvdrive.kvcache.statistics import Statistics
from kvdrive.kvcache.transfers import Transfers
from kvdrive.nvme.errors import CommandError


class Batch:
    """One sequence per row, opened by the first call, closed by `reset` or when nothing refers to the batch any more.

    `in_memory` makes the layers that are on no drive, by index. `layers`: all layers, as the model sees them;
    `rows`: those on drives. `listener`: what stores the tokens beyond the process, if something does.
    `saved_at`: the file from which a later process can open them. `history`: the calls that made the tokens.
    `family`: all batches of the attachment.
    """

    def __init__(
        self, shared: Shared, layers: int, in_memory: LayersInMemory, placement: Placement, most_bytes: int = 0
    ) -> None:
        self.placement = placement
        self.listener: Listener | None = None
        self.saved_at: Path | None = None
        self.history = History()
        self.family: weakref.WeakSet[Batch] = weakref.WeakSet()
        self._in_memory = in_memory
        others, backing = in_memory(), shared.backing
        stored = [
            StoredLayer(index, backing.spill, backing.stored_as, backing.scales.get(index))
            for index in range(layers)
            if index not in others
        ]
        self.part = Part(shared, stored, Transfers(most_bytes), partial(placement.open, shared))
        self.rows: list[RowsLayer] = [placement.layer(self.part, one) for one in stored]
        on_drives = {one.stored.index: one for one in self.rows}
        self.layers = [on_drives.get(index) or others[index] for index in range(layers)]
        self.statistics = Statistics(self.part, self.layers)
        self._as_cache = Cache(layers=self.layers)
        self._finalizer = weakref.finalize(self, backing.abandon, self.sequences)
        self._finalizer.atexit = False

    @property
    def sequences(self) -> list[Sequence]:
        """The sequences, one per row; empty before the first call."""
        return self.part.sequences

    @property
    def drive_layers(self) -> list[StoredLayer]:
        """The layers on the drives."""
        return self.part.layers

    @property
    def transfers(self) -> Transfers:
        """K and V in transfer to the drives."""
        return self.part.writeback.transfers

    @property
    def length(self) -> int:
        """Tokens so far, removed ones included: the position of the next one."""
        return int(self._as_cache.get_seq_length())

    @property
    def removed(self) -> int:
        """Tokens that were removed from behind the first group because the positions were used up."""
        return self.part.removed

    @property
    def removals(self) -> list[Removal]:
        """These removals, in order."""
        return self.history.removals()

    def token_ids(self) -> torch.Tensor:
        """The tokens of the rows, int64 [batch, tokens]. Raises UnsupportedError when they are not known."""
        return self.history.token_ids()

    # ---- tokens come ----

    def adopt(
        self,
        sequences: Several[Sequence],
        ids: torch.Tensor,
        layers: list[dict[str, Any]],
        removals: Several[Removal] = (),
    ) -> bool:
        """Fill the empty batch with sequences that hold K and V of ids [batch, tokens]; `describe_layers` made
        `layers`. `removals` were made since the first token; `ids` includes those tokens. True if the model continues
        behind them; False if they are to be computed again.
        """
        removed = sum(removal.tokens for removal in removals)
        self.sequences.extend(sequences)
        for layer, described in zip(self.drive_layers, layers, strict=True):
            layer.resume(ids.shape[1] - removed, len(sequences), described)
        for view in self.rows:
            view.is_initialized = True
        self.part.removed = removed
        if not self.placement.adopt(self.rows, self.sequences, ids, removed):
            return False
        first = 0
        for removal in removals:
            self.history.events += [Call(ids[:, first : removal.at], None, None, True), removal]
            first = removal.at
        self.history.events.append(Call(ids[:, first:], None, None, True))
        return True

    def describe_layers(self) -> list[dict[str, Any]]:
        """Shape and scales of each layer on the drives, as plain values."""
        return [layer.describe() for layer in self.drive_layers]

    def calling(self, arguments: dict[str, Any]) -> None:
        """Call it before each call of the model, with the arguments of its `forward`."""
        if not self.placement.continues(arguments, self.length):
            self.truncate(self.length)

    def called(self, arguments: dict[str, Any]) -> None:
        """Call it after each successful call of the model, with the arguments of its `forward`."""
        self.part.writeback.land()
        if self.listener:
            self.listener.called(arguments)
        self.history.add_call(arguments, self.part.in_prompt)

    def synchronize(self) -> None:
        """Wait until the drives have all K and V that were sent. Raises the error of a drive that failed."""
        self.part.writeback.land()
        self.transfers.finish()

    def write_all(self) -> None:
        """Send all pending tokens, and wait until the drives have them. Raises CommandError, TargetError."""
        self.part.writeback.send_all(self.drive_layers)

    # ---- tokens go ----

    def crop(self, tokens: int) -> None:
        """Remove the last `tokens` tokens. Raises UnsupportedError where a layer cannot take tokens back, CommandError,
        TargetError.
        """
        if tokens:
            self._require_croppable()
        for layer in self.others.values():
            layer.crop(-tokens)
        if not tokens or not self.sequences:
            return
        left = max(max(view.get_seq_length() for view in self.rows) - self.removed - tokens, 0)
        if self.removed and left < self.part.group and tokens < self.length:
            raise UnsupportedError(
                "the cache cannot go back to a token that was removed when the positions were used up"
            )
        self.truncate(left)
        if left:
            self.history.events.append(Crop(tokens))
        else:
            self.history = History()

    def truncate(self, tokens: int) -> None:
        """Remove all but the first `tokens` tokens of every layer on the drives. Raises CommandError, TargetError."""
        if tokens == 0:
            self.placement.stop()
            self.transfers.abandon()
            self._announce(0)
            drop(self.sequences)
            self._clear()
            return
        self.synchronize()
        self.transfers.forget_after(tokens)
        self._announce(tokens)
        if any(layer.stored > tokens for layer in self.drive_layers):
            self.forget_file()
        self.part.truncate(tokens)
        for view in self.rows:
            view.truncate(tokens)

    def undo(self, tokens: int) -> None:
        """Go back to the first `tokens` tokens after a failed call, if the drives still respond."""
        tokens = max(tokens - self.removed, 0)
        self.part.writeback.drop_arriving()
        self.transfers.abandon(tokens)
        try:
            if tokens:
                self._require_croppable()
                for layer in self.others.values():
                    if isinstance(layer, CacheLayerMixin) and layer.get_seq_length() > tokens:
                        layer.crop(tokens - layer.get_seq_length())
            self.truncate(tokens)
        except Exception as error:
            self.part.lost = str(error)
            if not self.rows:  # no layer would refuse the next call
                self.reset()

    def undo_parts(self, parts: Several[Part], tokens: int) -> None:
        """A call of `parts` has failed: the batch has its first `tokens` tokens, removed ones not counted, again."""
        try:
            self.part.undo(parts, tokens)
        except Exception as error:
            self.part.lost = str(error)

    def reset(self) -> None:
        """Remove all tokens, on the drives as well."""
        self.placement.reset()
        self.transfers.abandon()
        self._announce(0)
        self.forget_file()
        drop(self.sequences)
        self._clear()
        self.history = History()
        self.part.lost = None

    def erase(self) -> None:
        """Remove all tokens and erase their bytes from the drives' files. Tokens shared with other batches stay there.

        Raises CommandError, TargetError.
        """
        self.transfers.abandon()
        self._announce(0)
        self.forget_file()
        for sequence in self.sequences:
            sequence.erase()
        self.reset()

    def restart(self) -> None:
        """Empty the batch, so that its calls can be repeated. Sequences on failed drives cannot be closed and stay."""
        self.placement.stop()
        self.transfers.abandon()
        drop(self.sequences)
        self._clear()
        self.part.lost = None

    def detaching(self) -> None:
        """Call it when the model is detached: closes the sequences, unless they are stored for later."""
        if self.listener:
            self.listener.detaching()
        elif self.saved_at is None:
            self.reset()
        else:
            self.transfers.abandon()

    def retain(self) -> None:
        """The sequences stay on the drives when this batch goes."""
        self._finalizer.detach()

    def hand_over(self) -> None:
        """The sequences stay on the drives, and are not those of this batch any more."""
        self.retain()
        self.sequences.clear()

    def forget_file(self) -> None:
        """The file of `saved_at` does not describe the sequences any more: remove it."""
        if self.saved_at:
            self.saved_at.unlink(missing_ok=True)
            self.saved_at = None

    # ---- rows change ----

    def rearrange(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was. A sequence that is wanted again is forked, one not wanted is closed."""
        self.placement.finish()
        if not self.row_count or rows == list(range(self.row_count)):
            return
        if self.listener:
            self.listener.reordered()
        self.forget_file()
        if self.sequences:
            self._rearrange_sequences(rows)
        for view in self.rows:
            view.rearrange(rows)
        for layer in self.others.values():
            layer.reorder_cache(torch.tensor(rows))
        self.history.events.append(Rearrange(rows))

    def _rearrange_sequences(self, rows: list[int]) -> None:
        before, taken = list(self.sequences), set()
        after: list[Sequence] = []
        for row in rows:
            after.append(before[row].fork() if row in taken else before[row])
            taken.add(row)
        drop([sequence for row, sequence in enumerate(before) if row not in taken])
        self.sequences[:] = after

    @property
    def row_count(self) -> int:
        """Rows; 0 before the first call."""
        if self.sequences:
            return len(self.sequences)
        held = [layer.keys.shape[0] for layer in self.others.values() if getattr(layer, "keys", None) is not None]
        return held[0] if held else 0

    def fork(self) -> Batch:
        """A batch that begins with the same tokens and then has its own: the drives copy nothing.

        It is not stored beyond the process. Raises UnsupportedError, CommandError, TargetError.
        """
        placement, part = self.placement.fork(), self.part
        part.require_usable()
        other = Batch(part.shared.fork(), len(self.layers), self._in_memory, placement)
        other.part.in_prompt, other.part.removed = self.part.in_prompt, self.removed
        if self.sequences:
            self.write_all()
            other.sequences.extend(sequence.fork() for sequence in self.sequences)
        for layer, own, view in zip(self.drive_layers, other.drive_layers, other.rows, strict=True):
            if not layer.is_empty:
                own.resume(layer.stored, len(self.sequences), layer.describe())
                own.moved, view.is_initialized = layer.moved, True
        for index, one in enumerate(self.layers):
            if not isinstance(one, RowsLayer):
                other.layers[index] = copy.deepcopy(one)
        other.history.events, other.history.incomplete = list(self.history.events), self.history.incomplete
        other.family = self.family
        self.family.add(other)
        return other

    # ---- what happens around it ----

    def model_changed(self, reason: str) -> None:
        """The model is another one: the tokens can be neither computed again nor saved. What was stored before stays;
        rows that need the model cannot be used any more.
        """
        if self.length:
            self.history.incomplete = reason
        if self.listener:
            self.listener.model_changed(reason)
        if any(sequence.needs_model for sequence in self.sequences):
            self.part.lost = reason

    def send_again(self, error: KvdriveError) -> bool:
        """A drive refused tokens, maybe of earlier calls. True if it has them now, after sessions were evicted."""
        left: BaseException | None = error
        while isinstance(left, KvdriveError) and self._makes_room(left):
            left = self.transfers.send_again()
            if left is None:
                try:
                    self.trim_to_stored()
                except KvdriveError:
                    return False
                return True
        return False

    def _makes_room(self, error: KvdriveError) -> bool:
        full = isinstance(error, CommandError) and error.status == abi.NvmeStatus.CAPACITY_EXCEEDED
        return full and self.listener is not None and self.listener.make_room()

    def trim_to_stored(self) -> None:
        """Remove tokens that were sent again though their call has been undone. Raises CommandError, TargetError."""
        stored = max((layer.stored for layer in self.drive_layers), default=0)
        if stored:
            gather([future for sequence in self.sequences for future in sequence.trim(stored)])

    @property
    def is_on_drives(self) -> bool:
        """True if every layer is stored on drives: its prompt may be computed by several calls."""
        return len(self.rows) == len(self.layers)

    def require_on_drives(self) -> None:
        """Raises UnsupportedError when some layers stay in memory."""
        if not self.is_on_drives:
            raise UnsupportedError("some of the model's layers stay in memory, and keep what the drives would remove")

    def _announce(self, tokens: int) -> None:
        """All but the first `tokens` tokens are about to go."""
        if self.listener:
            self.listener.shrinks(tokens)

    def _require_croppable(self) -> None:
        if any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in self.others.values()):
            raise UnsupportedError("some of the model's layers hold a state from which no token can be removed again")

    @property
    def others(self) -> dict[int, Any]:
        """The layers that are on no drive, by index: transformers' own."""
        return {index: layer for index, layer in enumerate(self.layers) if not isinstance(layer, RowsLayer)}

    def forget_others(self) -> None:
        """Empty the layers that are on no drive."""
        others = self._in_memory()
        for index in self.others:
            self.layers[index] = others[index]

    def _clear(self) -> None:
        self.part.removed = 0
        for view in self.rows:
            view.forget()
        self.forget_others()
