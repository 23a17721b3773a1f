"""Several caches of one sequence each as the cache of one decode step: one call of the model, a row for each of them.

Each row keeps its own session, length and scales. Only the new tokens are side by side; nothing is padded. Rows whose
K and V are in memory attend there, one by one, while the drives answer the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers.cache_utils import Cache

from kvdrive.errors import TargetError, UnsupportedError
from kvdrive.kvcache.base import AttachedLayer, KvHandle, LayerCall
from kvdrive.kvcache.cache import DriveCache
from kvdrive.kvcache.layer import DriveLayer, send
from kvdrive.kvcache.sequence import gather
from kvdrive.kvcache.xcache.inputs import Inputs
from kvdrive.nvme.errors import CommandError


class JoinedLayer(AttachedLayer):
    """The layers `rows` of several caches, for calls with one new token in each row."""

    def __init__(self, rows: Sequence[DriveLayer]) -> None:
        super().__init__()
        self._rows = rows
        self._given: list[KvHandle | tuple[torch.Tensor, torch.Tensor]] = []  # by the rows: a handle, or K and V
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Never needed: the rows hold tokens."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[KvHandle, KvHandle]:
        """Give each row its K and V: [rows, heads, 1, d]. Raises what `DriveLayer.update` raises."""
        states = zip(self._rows, key_states.split(1), value_states.split(1), self._inputs(), strict=True)
        self._given = [_given(*of_row) for of_row in states]
        handle = KvHandle(self, self.get_seq_length(), key_states, value_states)
        return handle, handle

    def _inputs(self) -> list[Inputs | None]:
        """The call's inputs, by the rows; None without X-cache."""
        xcache = self._rows[0].cache.backing.xcache
        if xcache is None:
            return [None] * len(self._rows)
        x, positions = xcache.call(self._rows[0].index)
        return [(x[row : row + 1], positions[row % len(positions)][None]) for row in range(len(x))]

    def prefilled(self, call: LayerCall) -> None:
        """Never called: the rows hold tokens."""

    def attend(self, call: LayerCall) -> torch.Tensor:
        """See AttachedLayer. The queries of all rows are with the drives at the same time."""
        if call.mask is not None:
            raise UnsupportedError("the model masks tokens of a decode step: its sequences are computed one by one")
        assert call.in_memory is not None
        rows, parts = self._rows, call.query.split(1)
        queries, answers = {}, {}
        for row, given in enumerate(self._given):
            if isinstance(given, KvHandle):
                queries[row] = rows[row].queries(replace(call, handle=given, query=parts[row]))
        meanwhile = len(queries) < len(rows) or rows[0].cache.backing.xcache is not None
        jobs = itertools.chain.from_iterable(rows[row].jobs(one) for row, one in queries.items())
        asked = send(jobs, here=not meanwhile)
        for row in queries:
            rows[row].rebuild_next(1)
        for row, given in enumerate(self._given):
            if not isinstance(given, KvHandle):
                answers[row] = call.in_memory(parts[row], *given)
        gather(asked)
        for row, one in queries.items():
            answers[row] = rows[row].answer(one, parts[row])
        return torch.cat([answers[row] for row in range(len(rows))])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Those of the longest row. A step of one token needs no mask."""
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens of the longest row."""
        return max(row.get_mask_sizes(0)[0] for row in self._rows)


def _given(
    layer: DriveLayer, k: torch.Tensor, v: torch.Tensor, inputs: Inputs | None
) -> KvHandle | tuple[torch.Tensor, torch.Tensor]:
    """What a row gives for its new K and V: the handle of its drives, or all of its K and V in memory."""
    found, values = layer.update(k, v, inputs=inputs)
    return found if isinstance(found, KvHandle) else (found, values)


class JoinedCache(Cache):  # type: ignore[misc]
    """The cache of one decode step of `caches`, which hold one sequence each, no layer of it on the host alone."""

    def __init__(self, caches: Sequence[DriveCache]) -> None:
        self._caches = caches
        self.lengths = [int(cache.get_seq_length()) for cache in caches]
        rows = zip(*(cache.drive_layers for cache in caches), strict=True)
        super().__init__(layers=[JoinedLayer(layers) for layers in rows])

    def called(self, ids: torch.Tensor, positions: torch.Tensor) -> list[int]:
        """Tell the caches of a call with ids and positions [rows, 1]. Returns the rows that failed and were undone."""
        failed = []
        for row, cache in enumerate(self._caches):
            try:
                cache.called({"input_ids": ids[row : row + 1], "position_ids": positions[row : row + 1]})
            except (CommandError, TargetError):
                self._undo(row)
                failed.append(row)
        return failed

    def undo(self) -> None:
        """Go back to the tokens before the call, in all caches."""
        for row in range(len(self._caches)):
            self._undo(row)

    def _undo(self, row: int) -> None:
        """An append that failed is remembered: the row's next call, which is alone, raises its error and can repair."""
        cache = self._caches[row]
        failed = cache.transfers.failed()
        cache.undo(self.lengths[row])
        if failed:
            cache.transfers.add(0, failed)
