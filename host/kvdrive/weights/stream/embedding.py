"""An embedding whose rows are read when their tokens come."""

from __future__ import annotations

from typing import Any

import torch

from kvdrive.errors import UnsupportedError
from kvdrive.weights.bundles import PAGE, rounded_up
from kvdrive.weights.file import aligned
from kvdrive.weights.stream.files import CheckpointFiles
from kvdrive.weights.stream.stored import Stored
from kvdrive.weights.stream.units import Extent

_AT_ONCE = 64  # rows in flight


class Rows:
    """The rows of a matrix in a checkpoint, in the precision `dtype`."""

    def __init__(self, files: CheckpointFiles, stored: Stored, dtype: torch.dtype) -> None:
        self._files, self._stored, self._dtype = files, stored, dtype
        self._row = stored.bytes // stored.shape[0]
        self._stride = staging_bytes(stored) // _AT_ONCE
        self._memory = aligned(_AT_ONCE * self._stride)
        self._bytes = torch.from_numpy(self._memory)

    def read(self, numbers: list[int]) -> torch.Tensor:
        """Rows [n, width] of these numbers. Raises TargetError."""
        out = torch.empty(len(numbers), self._stored.shape[1], dtype=self._dtype)
        for first in range(0, len(numbers), _AT_ONCE):
            self._read(numbers[first : first + _AT_ONCE], out[first : first + _AT_ONCE])
        return out

    def _read(self, numbers: list[int], out: torch.Tensor) -> None:
        """Read as many rows as there is memory for."""
        reads, places = [], []
        for at, number in enumerate(numbers):
            begin = self._stored.offset + number * self._row
            start = begin // PAGE * PAGE
            size = rounded_up(begin + self._row, PAGE) - start
            memory = self._memory[at * self._stride : at * self._stride + size]
            reads.append(self._files.start(Extent(self._stored.file, start, size, 0), memory))
            places.append(at * self._stride + begin - start)
        self._files.wait(reads, noted=False)
        for row, place in zip(out, places, strict=True):
            row.copy_(self._bytes[place : place + self._row].view(self._stored.dtype))


def staging_bytes(stored: Stored) -> int:
    """The memory through which rows of this matrix are read."""
    return _AT_ONCE * (rounded_up(stored.bytes // stored.shape[0], PAGE) + PAGE)


def embed(module: torch.nn.Embedding, rows: Rows, own: Any, ids: torch.Tensor) -> torch.Tensor:
    """What `own`, the module's forward, computes of ids [...], with the rows of these tokens as its weights.

    Raises IndexError for a token outside of the vocabulary, as torch does, UnsupportedError and
    TargetError.
    """
    if ids.is_meta:
        raise UnsupportedError("the model moves its tokens to where the embedding is: take weights=flash or memory")
    used, places = torch.unique(ids, return_inverse=True)
    numbers = used.tolist()
    if numbers and not 0 <= numbers[0] <= numbers[-1] < module.num_embeddings:
        raise IndexError("index out of range in self")
    whole, padding = module._parameters["weight"], module.padding_idx
    module._parameters["weight"] = torch.nn.Parameter(rows.read(numbers), requires_grad=False)
    module.padding_idx = None  # matters for gradients alone, and may be no row of these
    try:
        return own(places)
    finally:
        module._parameters["weight"], module.padding_idx = whole, padding
