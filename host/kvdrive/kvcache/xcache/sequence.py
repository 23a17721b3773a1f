"""A row of a batch of which the drives hold layer inputs X. Its K and V are rebuilt, and attended to, on the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Several
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.arrivals import arrived
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.scaling import Exponents, Halves, scaled_halves
from kvdrive.kvcache.sequence import Endpoint, Sequence
from kvdrive.kvcache.session import Query
from kvdrive.kvcache.slices import Append, Sent, gather
from kvdrive.kvcache.xcache.attention import MemoryAttention
from kvdrive.kvcache.xcache.corrections import Corrections
from kvdrive.kvcache.xcache.inputs import XCache
from kvdrive.nvme.commands import AttentionOutput


@dataclass(frozen=True)
class LayerState:
    """What the host holds of one layer: X of the pending tokens, behind `stored` tokens on the drives.

    `exponents`: of the scales of K and of V, [heads] each.
    """

    stored: int
    pending: torch.Tensor
    keys: Corrections
    values: Corrections
    exponents: tuple[Exponents, Exponents]


@dataclass(frozen=True)
class Rebuilt:
    """K and V [heads, tokens, d] of a layer's first tokens, as if they had been stored."""

    k: Halves
    v: Halves


class InputSequence(Sequence):
    """See Sequence. `stored_x`: X, stored as if it were K. Values that threads share are replaced, never changed."""

    def __init__(self, stored_x: DriveSequence, shared: XCache) -> None:
        self.stored_x = stored_x
        self.slices = stored_x.slices
        self._shared = shared
        self._layers: dict[int, LayerState] = {}
        self._positions = np.empty(0, np.int64)
        self._held: tuple[int, Rebuilt] | None = None  # the layer that is being asked, or that will be asked next
        self._epoch = 0  # counts removals of tokens: what is rebuilt during one is of no use

    def note(
        self,
        layer: int,
        first: int,
        x: torch.Tensor,
        positions: NDArray[np.int64],
        exponents: tuple[Exponents, Exponents],
    ) -> None:
        before = self._layers.get(layer)
        if before is None:
            none = torch.empty(0, x.shape[1], dtype=x.dtype)
            before = LayerState(first, none, Corrections.none(), Corrections.none(), exponents)
        pending = torch.cat([before.pending, arrived(x)])
        self._layers[layer] = replace(before, pending=pending, exponents=exponents)
        if len(self._positions) < first + len(x):
            self._positions = np.concatenate([self._positions[:first], positions])

    def append(self, layer: int, first_token: int, k: Halves, v: Halves, worked: Callable[[float], None]) -> Sent:
        """Store X of the oldest pending tokens, whose K and V these are; see Sequence. Raises RangeError."""
        tokens = k.shape[1]
        state = self._layers[layer]
        x = state.pending[:tokens]
        rows = self._shared.rows.encode(x)
        rebuilt = self.project(layer, x, first_token)
        keys = state.keys.found(first_token, k, rebuilt.k)
        values = state.values.found(first_token, v, rebuilt.v)
        with self._shared.lock:
            self._shared.stats.bytes_written += rows.nbytes
            self._shared.stats.corrected += len(keys) - len(state.keys) + len(values) - len(state.values)
        left = state.pending[tokens:].clone()  # a view would keep X of the whole prompt in memory
        self._layers[layer] = replace(state, stored=first_token + tokens, pending=left, keys=keys, values=values)
        appends = [
            Append(one, layer, first_token, {abi.KvKind.KEYS: rows[one.first : one.last]}, worked)
            for one in self.slices
        ]
        return Sent(rows.nbytes, appends)

    def endpoints(self) -> list[Endpoint]:
        """See Sequence: all heads are answered in memory."""
        heads = len(next(iter(self._layers.values())).exponents[0])
        return [Endpoint(self._shared.worker, self, 0, heads, _answer)]

    def prepare(self, layer: int) -> None:
        """See Sequence. Starts rebuilding K and V."""
        epoch = self._epoch

        def work(_: MemoryAttention) -> None:
            self._hold(layer, self._rebuilt(layer), epoch)

        self._shared.worker.start(work)

    def read(self, layer: int, tokens: int, head_dim: int) -> tuple[Halves, Halves]:
        rebuilt = self._shared.worker.run(lambda _: self.take(layer))
        return rebuilt.k[:, :tokens], rebuilt.v[:, :tokens]

    def take(self, layer: int) -> Rebuilt:
        """K and V of the layer's stored tokens; the worker's thread calls it. Raises CommandError, TargetError."""
        with self._shared.lock:
            epoch, held = self._epoch, self._held
        if held is not None and held[0] == layer and held[1].k.shape[1] == self._layers[layer].stored:
            return held[1]
        rebuilt = self._rebuilt(layer)
        self._hold(layer, rebuilt, epoch)
        return rebuilt

    def _hold(self, layer: int, rebuilt: Rebuilt, epoch: int) -> None:
        """Hold one layer's K and V until another layer is rebuilt, unless tokens were removed since `epoch`."""
        with self._shared.lock:
            if epoch == self._epoch:
                self._held = (layer, rebuilt)

    def truncate(self, tokens: int, *, stored: bool = True) -> list[Future[None]]:
        futures = self.stored_x.truncate(tokens, stored=stored)
        self._forget_after(tokens)
        return futures

    def _forget_after(self, tokens: int) -> None:
        with self._shared.lock:
            self._epoch += 1
            self._held = None
        self._positions = self._positions[:tokens]
        for layer, state in self._layers.items():
            stored = min(state.stored, tokens)
            self._layers[layer] = replace(
                state,
                stored=stored,
                pending=state.pending[: max(tokens - state.stored, 0)],
                keys=state.keys.truncate(stored),
                values=state.values.truncate(stored),
            )

    def trim(self, tokens: int) -> list[Future[None]]:
        return self.stored_x.trim(tokens)

    def remove(self, removed: range, before: int, layers: int) -> None:
        raise UnsupportedError("a sequence that is stored as layer inputs cannot lose tokens in its middle")

    def fork(self, tokens: int = abi.MAX_TOKENS) -> InputSequence:
        copy = InputSequence(self.stored_x.fork(tokens), self._shared)
        copy._layers, copy._positions = dict(self._layers), self._positions
        copy._forget_after(tokens)
        return copy

    def close(self) -> list[Future[None]]:
        futures = self.stored_x.close()
        self._forget_after(0)
        return futures

    def erase(self) -> None:
        self.stored_x.erase()
        self._forget_after(0)

    @property
    def needs_model(self) -> bool:
        """See Sequence: K and V are computed again by it."""
        return True

    @property
    def in_order(self) -> bool:
        """True if each token's position is its number, as far as positions matter to K."""
        return self._shared.projections.rotary is None or np.array_equal(
            self._positions, np.arange(len(self._positions))
        )

    @property
    def positions(self) -> list[int]:
        """Of its tokens."""
        found: list[int] = self._positions.tolist()
        return found

    def describe(self) -> dict[str, Any]:
        """What the host knows of the layers and the drives do not, as plain values for `restored`."""
        return {
            str(layer): {
                "keys": state.keys.plain(),
                "values": state.values.plain(),
                "exponents": [one.tolist() for one in state.exponents],
            }
            for layer, state in self._layers.items()
        }

    @classmethod
    def restored(
        cls, stored_x: DriveSequence, shared: XCache, tokens: int, positions: Several[int], layers: dict[str, Any]
    ) -> InputSequence:
        """A row with the stored X of `tokens` tokens; `describe` made `layers`, maybe of more tokens."""
        row = cls(stored_x, shared)
        row._positions = np.array(positions, np.int64)
        empty = torch.empty(0, shared.rows.width, dtype=shared.rows.dtype)
        for layer, one in layers.items():
            keys, values = Corrections.restored(one["keys"]), Corrections.restored(one["values"])
            exponents = [np.array(scale, np.int64) for scale in one["exponents"]]
            row._layers[int(layer)] = LayerState(tokens, empty, keys, values, (exponents[0], exponents[1]))
        row._forget_after(tokens)
        return row

    def _rebuilt(self, layer: int) -> Rebuilt:
        """Read X and project it."""
        state = self._layers[layer]
        parts = gather(self.stored_x.start_read(layer, abi.KvKind.KEYS, state.stored, self._shared.rows.slice_dim))
        began = time.perf_counter()
        x = self._shared.rows.decode(np.concatenate(parts) if len(parts) > 1 else parts[0])
        rebuilt = self.project(layer, x, 0)
        state.keys.apply(rebuilt.k)
        state.values.apply(rebuilt.v)
        with self._shared.lock:
            self._shared.stats.bytes_read += sum(part.nbytes for part in parts)
            self._shared.stats.rebuild_seconds += time.perf_counter() - began
            self._shared.stats.tokens_rebuilt += state.stored
        return rebuilt

    def project(self, layer: int, x: torch.Tensor, first: int) -> Rebuilt:
        """K and V of x [tokens, width], which are tokens `first` and following ones."""
        positions = self._positions[first : first + len(x)]
        k, v = self._shared.projections.project(layer, x, positions, first)
        of_keys, of_values = self._layers[layer].exponents
        return Rebuilt(_halves(k, of_keys), _halves(v, of_values))


def _halves(tensor: torch.Tensor, exponents: Exponents) -> Halves:
    """[heads, tokens, d], divided by 2^exponents [heads], in binary16 as `HeadScale` rounds."""
    if exponents.any():
        tensor = torch.from_numpy(scaled_halves(tensor[None], exponents[None])[0][0])
    halves: Halves = arrived(tensor.float().to(torch.float16).contiguous()).numpy()
    return halves


def _answer(attention: MemoryAttention, queries: Several[Query]) -> list[AttentionOutput]:
    """Answer queries in the worker's thread; those of one row and layer share what is rebuilt."""
    held: tuple[Any, int] | None = None
    answers = []
    for one in queries:
        row = cast(InputSequence, cast(object, one.session))
        if held != (row, one.layer):
            held, rebuilt = (row, one.layer), row.take(one.layer)
        answers.append(attention.attend(one, rebuilt.k, rebuilt.v))
    return answers
