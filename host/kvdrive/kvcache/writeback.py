"""New tokens are written to the drives: from the model's device, pending on the host, then in transfer."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Several
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive.kvcache.arrivals import Arriving, ArrivingHalves, Rounded, arrives_later, depart, depart_as_is
from kvdrive.kvcache.layer import StoredLayer
from kvdrive.kvcache.scaling import Exponents, Halves
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.transfers import Transfers
from kvdrive.kvcache.xcache.inputs import Inputs, XCache


@dataclass(frozen=True)
class Leaving:
    """K and V of a call, and its inputs X with their positions where X-cache needs them, on their way to the host."""

    keys: Arriving | ArrivingHalves
    values: Arriving | ArrivingHalves
    x: Arriving | None = None
    positions: NDArray[np.int64] | None = None

    def inputs(self) -> Inputs | None:
        """X on the host. Waits for it."""
        return None if self.x is None or self.positions is None else (self.x.wait(), self.positions)


class Writeback:
    """Writes the tokens of layers to `sequences`, in order, `spill` at a time.

    The first call of a sequence and long ones go to the drives at once. Tokens of other calls are pending until there
    are `spill` of them. Nothing waits for a drive unless `transfers` is full; the error of a drive that failed is
    raised by a later call.
    """

    def __init__(self, spill: int, sequences: list[Sequence], transfers: Transfers, xcache: XCache | None) -> None:
        self.transfers = transfers
        self._spill = spill
        self._sequences = sequences
        self._xcache = xcache
        self._arriving: deque[tuple[StoredLayer, Leaving]] = deque()

    def make_room(self, like: torch.Tensor) -> None:
        """Wait until the transfers have room for K and V of a call. Raises the error of a drive that failed."""
        self.transfers.make_room(arrives_later(like))

    def take(self, layer: StoredLayer, keys: torch.Tensor, values: torch.Tensor, inputs: Inputs | None) -> None:
        """Take new K and V [batch, heads, tokens, d]; from a GPU when the next layer has its own: until then they are
        on their way to the host. Raises RangeError, CommandError, TargetError.
        """
        stored_as = layer.key_scale.stored_as
        if not arrives_later(keys):
            self._receive(layer, keys, values, inputs)
        elif self._xcache is None:
            self.expect(layer, Leaving(depart(keys, stored_as), depart(values, stored_as)))
        else:
            x, positions = inputs or self._xcache.call(layer.index)
            leaving = Leaving(depart(keys, stored_as), depart(values, stored_as), depart_as_is(x), positions)
            self.expect(layer, leaving)

    def expect(self, layer: StoredLayer, leaving: Leaving) -> None:
        """As `take`, for what has departed already."""
        self._arriving.append((layer, leaving))
        while len(self._arriving) > 1:
            self._land_oldest()

    def land(self, layer: StoredLayer | None = None) -> None:
        """Wait for K and V in transfer from the model's device, those of `layer` at least. Raises RangeError,
        CommandError, TargetError.
        """
        while self._arriving and (layer is None or any(layer is one for one, _ in self._arriving)):
            self._land_oldest()

    def drop_arriving(self) -> None:
        """Forget K and V in transfer from the model's device: their call has failed."""
        self._arriving.clear()

    def add(self, layer: StoredLayer, k: Halves, v: Halves) -> bool:
        """Send new tokens to the drives and return True, or let them be pending if they are few."""
        assert layer.pending is not None
        if layer.tokens and k.shape[2] < self._spill:
            layer.pending.add(k, v)
            return False
        self.send(layer, layer.pending.count)
        self._send(layer, k, v)
        return True

    def send_due(self, layer: StoredLayer) -> None:
        """Start sending pending tokens up to the last whole multiple of `spill`. Does not wait."""
        due = layer.tokens // self._spill * self._spill - layer.stored
        if due > 0:
            self.send(layer, due)

    def send(self, layer: StoredLayer, tokens: int) -> None:
        """Start sending the oldest pending tokens."""
        if tokens:
            assert layer.pending is not None
            self.transfers.make_room()
            self._send(layer, *layer.pending.take(tokens))

    def send_all(self, layers: Several[StoredLayer]) -> None:
        """Send all pending tokens, and wait until the drives have them. Raises CommandError, TargetError."""
        self.land()
        for layer in layers:
            if layer.pending:
                self.send(layer, layer.pending.count)
        self.transfers.finish()

    def _land_oldest(self) -> None:
        layer, leaving = self._arriving.popleft()
        self._receive(layer, leaving.keys.wait(), leaving.values.wait(), leaving.inputs())

    def _receive(
        self, layer: StoredLayer, keys: torch.Tensor | Rounded, values: torch.Tensor | Rounded, inputs: Inputs | None
    ) -> None:
        first = layer.tokens
        k, v = layer.key_scale.convert(keys), layer.value_scale.convert(values)
        if self._xcache is not None:
            self._note(layer, first, inputs or self._xcache.call(layer.index))
        layer.turn = (k, v) if self.add(layer, k, v) and first > 0 else None

    def _note(self, layer: StoredLayer, first: int, inputs: Inputs) -> None:
        """Give the sequences the inputs of the layer's tokens from `first` on."""
        x, positions = inputs
        of_k, of_v = _exponents(layer.key_scale.exponents), _exponents(layer.value_scale.exponents)
        for row, sequence in enumerate(self._sequences):
            at = positions[min(row, len(positions) - 1)]
            sequence.note(layer.index, first, x[row], at, (of_k[row], of_v[row]))

    def _send(self, layer: StoredLayer, k: Halves, v: Halves) -> None:
        size, appends = 0, []
        for row, sequence in enumerate(self._sequences):
            sent = sequence.append(layer.index, layer.stored, k[row], v[row], self.transfers.worked)
            size += sent.size
            appends += sent.appends
        self.transfers.add(size, appends)
        layer.stored += k.shape[2]


def _exponents(known: Exponents | None) -> Exponents:
    assert known is not None
    return known
