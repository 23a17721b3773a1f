"""transformers' interface to parts of one batch, or to several batches, for one call of the model.

Each part has its own sequences, length and scales. Only the new tokens are side by side; nothing is padded. Rows whose
K and V are in memory attend there, one by one, while the drives answer the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

import numpy as np
import torch
from transformers.cache_utils import Cache

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.asking import Meanwhile, ask
from kvdrive.kvcache.calls import AttachedLayer, KvHandle, LayerCall
from kvdrive.kvcache.on_drives import DriveLayer
from kvdrive.kvcache.placement import RowsLayer
from kvdrive.kvcache.queries import Queries
from kvdrive.kvcache.xcache.inputs import Inputs

RowsOf = tuple[slice, Sequence[RowsLayer]]  # rows of a call, and the layers of the part that has them
Tensors = tuple[torch.Tensor, torch.Tensor]


class PartsLayer(AttachedLayer):
    """One layer of `parts`, each with its rows of the call. Other rows are computed in vain: their answers are 0.

    `alike`: the parts are rows of one batch, with equally many tokens, so that a mask fits all of them. Otherwise each
    is a sequence of its own, and its rows of the call, of one token each, are its next tokens. `meanwhile`: called when
    the queries are with the drives.
    """

    def __init__(self, parts: Sequence[tuple[slice, RowsLayer]], alike: bool, meanwhile: Meanwhile | None) -> None:
        super().__init__()
        self._parts = parts
        self._alike = alike
        self._meanwhile = meanwhile
        self._given: list[KvHandle | Tensors] = []  # by the parts: a handle, or K and V
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[KvHandle, KvHandle]:
        """Give each part its K and V of [rows, heads, tokens, d]. Raises what `Part.update` raises."""
        inputs = self._inputs()
        self._given = [
            self._given_by(view, self._own(key_states, rows), self._own(value_states, rows), inputs, rows)
            for rows, view in self._parts
        ]
        handle = KvHandle(self, self.get_seq_length() - key_states.shape[2], key_states, value_states)
        return handle, handle

    def _own(self, states: torch.Tensor, rows: slice) -> torch.Tensor:
        """A part's share of a call's [rows, heads, tokens, d]."""
        own = states[rows]
        return own if self._alike else own.transpose(0, 2).contiguous()

    def _given_by(
        self, view: RowsLayer, k: torch.Tensor, v: torch.Tensor, inputs: Inputs | None, rows: slice
    ) -> KvHandle | Tensors:
        """What a part gives for its new K and V: the handle of its drives, or all of its K and V in memory."""
        mine = None
        if inputs is not None:
            x, positions = inputs
            x, positions = x[rows], positions if len(positions) == 1 else positions[rows]
            if not self._alike:
                x, positions = x.transpose(0, 1), np.broadcast_to(positions.T, (1, len(x)))
            mine = x, positions
        found, values = view.update(k, v, inputs=mine)
        return found if isinstance(found, KvHandle) else (found, values)

    def _inputs(self) -> Inputs | None:
        """The call's inputs, for X-cache; None without it."""
        view = self._parts[0][1]
        xcache = view.part.shared.backing.xcache
        return None if xcache is None else xcache.call(view.stored.index)

    def attend(self, call: LayerCall) -> torch.Tensor:
        """See AttachedLayer. The queries of all parts are with the drives at the same time."""
        if call.mask is not None and not self._alike:
            raise UnsupportedError("the model masks tokens of a decode step: its sequences are computed one by one")
        batch, heads, new_tokens, head_dim = call.query.shape
        out = call.query.new_zeros(batch, new_tokens, heads, head_dim)
        asked: list[tuple[slice, Queries]] = []
        held: list[tuple[slice, Tensors]] = []
        for (rows, view), given in zip(self._parts, self._given, strict=True):
            if isinstance(given, KvHandle):
                assert isinstance(view, DriveLayer)
                mask = call.mask if call.mask is None or len(call.mask) == 1 else call.mask[rows]
                own = replace(call, handle=given, query=self._own(call.query, rows), mask=mask)
                asked.append((rows, view.queries(own)))
            else:
                held.append((rows, given))
        meanwhile = partial(self._attend_in_memory, call, held, out) if held else self._meanwhile
        if asked:
            ask([queries for _, queries in asked], meanwhile)
        elif meanwhile is not None:
            meanwhile()
        for rows, queries in asked:
            answers = queries.answers(call.query)
            out[rows] = answers if self._alike else answers.transpose(0, 1)
        return out

    def _attend_in_memory(self, call: LayerCall, held: list[tuple[slice, Tensors]], out: torch.Tensor) -> None:
        assert call.in_memory is not None
        for rows, (k, v) in held:
            if self._alike:
                out[rows] = call.in_memory(call.query[rows], k, v)
                continue
            for row in range(rows.start, rows.stop):  # each token sees those before it
                end = k.shape[2] - (rows.stop - 1 - row)
                out[row : row + 1] = call.in_memory(call.query[row : row + 1], k[:, :, :end], v[:, :, :end])
        if self._meanwhile is not None:
            self._meanwhile()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Those of the longest part."""
        found: tuple[int, int] = max((view.get_mask_sizes(query_length) for _, view in self._parts), key=itemgetter(0))
        return found

    def get_seq_length(self) -> int:
        """Tokens of the longest part."""
        return max(int(view.get_seq_length()) for _, view in self._parts)


class PartsCache(Cache):  # type: ignore[misc]
    """See PartsLayer. The parts hold tokens, no layer of them on the host alone."""

    def __init__(self, parts: Sequence[RowsOf], *, alike: bool, meanwhile: Meanwhile | None = None) -> None:
        of_layers = zip(*(views for _, views in parts), strict=True)
        rows = [rows for rows, _ in parts]
        super().__init__(
            layers=[PartsLayer(list(zip(rows, views, strict=True)), alike, meanwhile) for views in of_layers]
        )
