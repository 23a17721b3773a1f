"""Rows that run in memory and are stored on drives as well (AttentionStore's arrangement).

Attention is the model's own, over preallocated tensors. They hold what the drives hold: K and V are rounded to binary16
before they are attended to, so that a sequence that was loaded continues as one that never stopped. New tokens go to
the drives in the background, by layer, as those of rows that run there.

Where tokens have left the middle of a sequence, the drives' own copy is shortened first. Only what is left is loaded,
and not the first group, which the model computes at other positions (`recovery`).
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.arrivals import ArrivingHalves, Rounded, arrives_later, depart
from kvdrive.kvcache.budget import MemoryOptions
from kvdrive.kvcache.calls import LayerCall
from kvdrive.kvcache.copies import computed_here
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.layer import StoredLayer
from kvdrive.kvcache.loading import LoadedLayer, Loading, LoadPlan, LoadStats
from kvdrive.kvcache.part import Part, Shared
from kvdrive.kvcache.placement import Placement, RowsLayer
from kvdrive.kvcache.rows import Place, Rows
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.writeback import Leaving


class InMemory(Placement):
    """See Placement. The tensors are at `place`.

    `expected_tokens`: how many the sequences will have, where that is known: the tensors are made so large at once.
    `plan`: how tokens that the drives have get into memory; None: by computing them again.
    """

    drives_attend: ClassVar[bool] = False

    def __init__(self, place: Place, options: MemoryOptions, expected_tokens: int = 0) -> None:
        self.place = place
        self.options = options
        self.expected_tokens = expected_tokens
        self.plan: LoadPlan | None = LoadPlan(options.read_buffer)
        self.loading = Loading.nothing()
        self._writes = True  # False: the drives are full, or not to be written
        self._ended: LoadStats | None = None
        self._known: torch.Tensor | None = None  # tokens that the drives have and that are computed again

    def layer(self, part: Part, stored: StoredLayer) -> MemoryLayer:
        return MemoryLayer(part, stored, self)

    def open(self, shared: Shared, rows: int, heads: int) -> list[Sequence]:
        if not self._writes:
            return [DriveSequence([]) for _ in range(rows)]
        return super().open(shared, rows, heads)

    def adopt(self, layers: Several[RowsLayer], sequences: list[Sequence], ids: torch.Tensor, removed: int) -> bool:
        """See Placement. Begins to load the tokens by `plan`."""
        if self.plan is None and removed:
            raise UnsupportedError("a sequence that lost tokens in its middle is loaded: it cannot be computed again")
        if self.plan is None:
            self._known = ids
            return False
        held = ids.shape[1] - removed
        self._load(layers, sequences, range(layers[0].part.group if removed else 0, held))
        return True

    def remove(self, layers: Several[RowsLayer], sequences: list[Sequence], tokens: range) -> None:
        """See Placement. What was not loaded by now is loaded from what is left, each drive behind its last read."""
        self._known = None
        super().remove(layers, sequences, tokens)
        if self.loading.tokens and not self.loading.done:
            self.loading.cancel(wait_for_reads=True)
            self.stop()  # the rest comes from the drives: a copy in memory has the removed tokens as well
            self._load(layers, sequences, range(tokens.start, layers[0].stored.tokens))

    def continues(self, arguments: dict[str, Any], tokens: int) -> bool:
        """See Placement. Tokens that are computed again and repeat those of the drives are not written again."""
        if self._known is None:
            return True
        rest = self._known[:, tokens:]
        if rest.shape[1] and _repeats(arguments, rest):
            return True
        self._known = None
        return not rest.shape[1]

    def fork(self) -> Placement:
        raise UnsupportedError("a cache in memory cannot be copied: compute its tokens with another cache")

    def finish(self) -> None:
        self.loading.finish()

    def stop(self) -> None:
        if self.loading.tokens:
            self._ended = self._stats()
        self.loading.cancel()
        self.loading, self._known = Loading.nothing(), None
        if self.plan is not None:
            self.plan = replace(self.plan, held=None, from_memory=False)  # nothing else may hold on to a copy

    def reset(self) -> None:
        self.stop()
        self._writes = True

    def write_nothing(self) -> bool:
        self._writes = False
        return True

    @property
    def loads_from_memory(self) -> bool:
        return self.plan is not None and self.plan.from_memory

    def load_ended(self) -> LoadStats | None:
        if self.loading.done:
            self.stop()
        elif self.loading.tokens:
            return None
        ended, self._ended = self._ended, None
        return ended

    def _load(self, layers: Several[RowsLayer], sequences: list[Sequence], tokens: range) -> None:
        """Begin to load `tokens`, the last of which are the last of the sequences."""
        assert self.plan is not None
        plan = replace(self.plan, recompute_seconds=None) if tokens.start else self.plan
        room = [layer.begin_load(tokens.stop) for layer in layers if isinstance(layer, MemoryLayer)]
        self.loading = Loading(room, sequences, tokens, plan)

    def _stats(self) -> LoadStats:
        """Of the load, and of those that it goes on with."""
        stats = self.loading.stats()
        return stats if self._ended is None else self._ended.before(stats)


class MemoryLayer(RowsLayer):
    """See RowsLayer: `count` tokens in memory. The drives may have more, which a call is about to compute again."""

    def __init__(self, part: Part, stored: StoredLayer, memory: InMemory) -> None:
        super().__init__(part, stored)
        self._memory = memory
        self._rows: Rows | None = None
        self.count = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take K and V [batch, heads, tokens, d]; returns those of all tokens, as they are stored.

        Waits until the layer's earlier tokens are in memory. Raises RangeError, CommandError, TargetError,
        UnsupportedError, LateLoadError.
        """
        stored = self.stored
        self.part.begin_call(stored, key_states)
        self.is_initialized = True
        self._memory.loading.wait(stored.index)
        rows = self._room()
        end = self.count + key_states.shape[2]
        rows.grow(max(end, self._memory.expected_tokens), self.count)
        if arrives_later(key_states):
            stored_as = stored.key_scale.stored_as
            self._take_from_device(rows, Leaving(depart(key_states, stored_as), depart(value_states, stored_as)))
        else:
            self._take(rows, key_states, value_states)
        self.count = end
        return rows.k[:, :, :end].to(key_states), rows.v[:, :, :end].to(value_states)

    def _take(self, rows: Rows, keys: torch.Tensor | Rounded, values: torch.Tensor | Rounded) -> None:
        """Round K and V of a call on the host, for `rows` and for the drives."""
        stored = self.stored
        k, v = stored.key_scale.convert(keys), stored.value_scale.convert(values)
        rows.put(self.count, k, v, (stored.key_scale.factors, stored.value_scale.factors))
        known = stored.tokens - self.count  # tokens of this call that the drives have already
        if known < k.shape[2]:
            self.part.writeback.add(stored, k[:, :, known:], v[:, :, known:])
            self.part.writeback.send_due(stored)

    def _take_from_device(self, rows: Rows, leaving: Leaving) -> None:
        """What the device has rounded stays there, unless heads need a scale; the drives get it a layer later."""
        stored, k, v = self.stored, leaving.keys, leaving.values
        self.part.writeback.land(stored)
        self.part.writeback.send_due(stored)
        stored.turn = None
        if (
            isinstance(k, ArrivingHalves)
            and isinstance(v, ArrivingHalves)
            and stored.tokens == self.count
            and stored.key_scale.is_plain(k.largest())
            and stored.value_scale.is_plain(v.largest())
        ):
            ones = np.ones(k.there.shape[:2])
            rows.put(self.count, k.there, v.there, (ones, ones))
            for halves in (k.there, v.there):
                computed_here(halves)
            self.part.writeback.expect(stored, leaving)
        else:
            self._take(rows, k.wait(), v.wait())

    def attend(self, call: LayerCall) -> torch.Tensor:
        """Never called: the model attends to the tensors that `update` returns."""
        raise AssertionError

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a mask for `query_length` new tokens covers."""
        return self.count + query_length, self.part.removed

    def get_seq_length(self) -> int:
        """Tokens in memory or being loaded, and removed ones: the position of the next one."""
        return self.count + self.part.removed

    def forget(self) -> None:
        super().forget()
        self.empty_memory()

    def stored_rows(self, tokens: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]] | None:
        """K and V of the first `tokens` tokens of a batch of one row as the drives have them, uint8 [heads, tokens,
        bytes of a row]. None where memory does not hold these numbers: a first group that was moved is another one.
        """
        rows = self._rows
        if rows is None or self.count < tokens or self.stored.moved:
            return None
        k = self.stored.key_scale.as_stored(rows.k[0, :, :tokens])
        v = self.stored.value_scale.as_stored(rows.v[0, :, :tokens])
        return None if k is None or v is None else (k, v)

    def truncate(self, tokens: int) -> None:
        self.count = min(self.count, tokens)

    def remove(self, tokens: range) -> None:
        super().remove(tokens)
        assert self._rows is not None
        self._rows.remove(tokens, self.count)
        self.count -= len(tokens)

    def move_first(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().move_first(keys, values)
        assert self.stored.moved is not None
        self._room().put(0, *self.stored.moved, (self.stored.key_scale.factors, self.stored.value_scale.factors))

    def rearrange(self, rows: list[int]) -> None:
        super().rearrange(rows)
        if self._rows is not None:
            self._rows.rearrange(rows)

    def empty_memory(self) -> None:
        """Forget what is in memory; the drives hold on to it."""
        if self._rows is not None:
            self._rows.release()
        self._rows, self.count = None, 0

    def begin_load(self, tokens: int) -> LoadedLayer:
        """Room for `tokens` tokens that are about to be loaded; they count from now on."""
        rows = self._room()
        rows.grow(max(tokens, self._memory.expected_tokens), self.count)
        self.count = tokens
        return LoadedLayer(self.stored.index, rows.k, rows.v, (self.stored.key_scale, self.stored.value_scale))

    def _room(self) -> Rows:
        if self._rows is None:
            assert self.stored.pending is not None
            batch, heads, _, head_dim = self.stored.pending.k.shape
            self._rows = Rows(self._memory.place, batch, heads, head_dim)
        return self._rows


def _repeats(arguments: dict[str, Any], known: torch.Tensor) -> bool:
    """True if a call's tokens [1, tokens] begin with `known`, or the other way round, and all tokens are seen."""
    ids, mask = arguments.get("input_ids"), arguments.get("attention_mask")
    if not isinstance(ids, torch.Tensor) or ids.shape[0] != 1 or (mask is not None and not bool(mask.all())):
        return False
    both = min(ids.shape[1], known.shape[1])
    return bool(torch.equal(ids[:, :both].cpu(), known[:, :both]))
