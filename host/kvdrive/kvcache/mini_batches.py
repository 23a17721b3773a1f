"""A batch in mini-batches: while the drives attend to one of them, the host computes the layers of another one.

Each mini-batch has a cache of its own and runs the model in a thread of its own; the threads take turns, and pass on
when their queries are with the drives. Every call of the model has all rows of the batch, of which a mini-batch uses
its own: a product of fewer rows may round otherwise. So each row has the bits that it has in one call for all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers.cache_utils import Cache

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.base import AttachedCache, AttachedLayer, KvHandle, LayerCall
from kvdrive.kvcache.cache import DriveCache
from kvdrive.kvcache.history import History
from kvdrive.kvcache.layer import DriveLayer
from kvdrive.kvcache.sequence import gather
from kvdrive.kvcache.transfers import TransferStats
from kvdrive.kvcache.turns import Turns
from kvdrive.kvcache.xcache.inputs import Inputs
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.targets.queue import WorkQueue

Part = tuple[slice, DriveLayer]  # rows of the batch, and the layer that has them


class BatchLayer(AttachedLayer):
    """One layer of a batch. A call concerns the rows of `parts`; answers for other rows are 0."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self._parts = parts
        self._handles: list[KvHandle] = []
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Never needed: each part does it."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[KvHandle, KvHandle]:
        """Give each part its K and V of [batch, heads, tokens, d]. Raises what `DriveLayer.update` raises."""
        inputs = self._inputs()
        self._handles = [
            layer.update(key_states[rows], value_states[rows], inputs=_of_rows(inputs, rows))[0]
            for rows, layer in self._parts
        ]
        handle = KvHandle(self, self._handles[0].first_token, key_states, value_states)
        return handle, handle

    def _inputs(self) -> Inputs | None:
        """The call's inputs, for X-cache; None without it."""
        layer = self._parts[0][1]
        xcache = layer.cache.backing.xcache
        return None if xcache is None else xcache.call(layer.index)

    def prefilled(self, call: LayerCall) -> None:
        """See AttachedLayer. K and V are already being sent."""

    def attend(self, call: LayerCall) -> torch.Tensor:
        """See AttachedLayer. Raises what `DriveLayer.attend` raises."""
        batch, heads, new_tokens, head_dim = call.query.shape
        out = call.query.new_zeros(batch, new_tokens, heads, head_dim)
        for (rows, layer), handle in zip(self._parts, self._handles, strict=True):
            mask = call.mask if call.mask is None or len(call.mask) == 1 else call.mask[rows]
            out[rows] = layer.attend(replace(call, handle=handle, query=call.query[rows], mask=mask))
        return out

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Those of the parts, which have equally many tokens."""
        return self._parts[0][1].get_mask_sizes(query_length)

    def get_seq_length(self) -> int:
        """Tokens so far."""
        return self._parts[0][1].get_seq_length()


class MiniBatches(AttachedCache):
    """The cache of a batch of `rows` sequences in mini-batches, one for each of the empty `caches`.

    The first mini-batch runs in the caller's thread, the others in those of `threads`. Rows keep their places.
    """

    def __init__(self, caches: Sequence[DriveCache], rows: int, threads: Sequence[WorkQueue[None]]) -> None:
        self._caches = caches
        self._threads = threads
        self._rows = [slice(*part) for part in pairwise(rows * i // len(caches) for i in range(len(caches) + 1))]
        for cache in caches:
            cache.count_unread_with(caches[0])
        layers = zip(*(cache.drive_layers for cache in caches), strict=True)
        self._parts: list[list[Part]] = [list(zip(self._rows, parts, strict=True)) for parts in layers]
        super().__init__(layers=[BatchLayer(parts) for parts in self._parts])

    def calling(self, arguments: dict[str, Any]) -> None:
        """See AttachedCache. Raises UnsupportedError for another number of rows."""
        given = arguments.get("input_ids")
        given = arguments.get("inputs_embeds") if given is None else given
        rows = self._rows[-1].stop
        if given is not None and len(given) != rows:
            raise UnsupportedError(f"the cache holds {rows} sequences in mini-batches, the call {len(given)}")

    def run(self, forward: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
        """See AttachedCache. The first call, which attends on the host, is one call for all rows."""
        if not self.get_seq_length():
            return super().run(forward, bound)
        turns, settings = Turns(len(self._caches)), _thread_settings()

        def run(number: int, _: None = None) -> Any:
            turns.wait(number)
            cache = self._caches[number]
            cache.while_drives_attend = partial(turns.pass_on, number)
            try:
                mine = Cache(layers=[BatchLayer([parts[number]]) for parts in self._parts])
                arguments = bound.arguments | {"past_key_values": mine}
                called = inspect.BoundArguments(bound.signature, arguments)
                with settings():
                    return forward(*called.args, **called.kwargs)
            finally:
                cache.while_drives_attend = None
                turns.leave(number)

        others = [thread.start(partial(run, i)) for i, thread in enumerate(self._threads[: len(self._caches) - 1], 1)]
        try:
            first = run(0)
        finally:
            rest = gather(others)
        return self._joined([first, *rest])

    def _joined(self, outputs: Sequence[Any]) -> Any:
        """What the outputs say of each row of the batch, from the row's own mini-batch; lists are left out."""
        first, rows = outputs[0], self._rows[-1].stop
        found = {
            name: torch.cat([output[name][part] for output, part in zip(outputs, self._rows, strict=True)])
            for name, value in first.items()
            if isinstance(value, torch.Tensor) and value.ndim and len(value) == rows
        }
        return type(first)(**found, past_key_values=self)

    def undo(self, tokens: int) -> None:
        """See AttachedCache."""
        for cache in self._caches:
            cache.undo(tokens)

    def reset(self) -> None:
        """See AttachedCache."""
        for cache in self._caches:
            cache.reset()
        self.history = History()

    def erase(self) -> None:
        """See AttachedCache."""
        for cache in self._caches:
            cache.erase()
        self.reset()

    def leave(self) -> None:
        """See AttachedCache."""
        self.reset()

    def synchronize(self) -> None:
        """See AttachedCache."""
        for cache in self._caches:
            cache.synchronize()

    def bytes_read(self) -> int:
        """See AttachedCache."""
        return self._caches[0].bytes_read()

    def rate_singly(self) -> None:
        """See AttachedCache."""
        for cache in self._caches:
            cache.rate_singly()

    def writeback(self) -> dict[str, Any] | None:
        """See AttachedCache. Counters are sums over the mini-batches."""
        found = self._caches[0].writeback()
        assert found is not None
        stats = [cache.transfer_stats() for cache in self._caches]
        total = TransferStats(*(sum(getattr(one, field.name) for one in stats) for field in fields(TransferStats)))
        ranges = [cache.range_stats() for cache in self._caches]
        if found["xcache"]:
            stored = [isinstance(row, InputSequence) for cache in self._caches for row in cache.sequences]
            found["xcache"]["alpha"] = sum(stored) / len(stored)
        summed = {name: sum(one[name] for one in ranges) for name in ranges[0]}
        return {**found, **asdict(total), "overlap": total.overlap, **summed}

    def unread_mass(self) -> dict[str, float] | None:
        """See AttachedCache."""
        return self._caches[0].unread_mass()

    def recompute(self, forward: Callable[..., Any], device: torch.device) -> None:
        """See AttachedCache. Never called: `attach` refuses it with mini-batches."""
        raise _refusal("compute lost tokens again")

    def save(self, path: Path) -> None:
        """Not for mini-batches: raises UnsupportedError."""
        raise _refusal("be saved")

    def reopen(self, path: Path) -> None:
        """Not for mini-batches: raises UnsupportedError."""
        raise _refusal("be opened again")

    def crop(self, tokens_to_remove: int) -> None:
        """Not for mini-batches: raises UnsupportedError."""
        raise _refusal("lose tokens")

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Not for mini-batches: raises UnsupportedError. So do the other methods that move rows."""
        raise _refusal("move rows")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """See `reorder_cache`."""
        raise _refusal("move rows")

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """See `reorder_cache`."""
        raise _refusal("move rows")


def _refusal(what: str) -> UnsupportedError:
    return UnsupportedError(f"a batch in mini-batches cannot {what}: attach with one mini-batch")


def _of_rows(inputs: Inputs | None, rows: slice) -> Inputs | None:
    """X and positions of some rows of a call."""
    if inputs is None:
        return None
    x, positions = inputs
    return x[rows], positions if len(positions) == 1 else positions[rows]


def _thread_settings() -> Callable[[], Any]:
    """This thread's settings of torch, as a context for other threads."""
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    inference = torch.is_inference_mode_enabled()

    @contextmanager
    def settings() -> Iterator[None]:
        torch.set_num_threads(threads)
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            yield

    return settings
