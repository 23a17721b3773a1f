"""Where everything lies in a file of weights.

The file holds *bundles*: parts of tensors that are always read together, at page-aligned places. An expert is a bundle
of its matrices; a tensor that stays in memory is a bundle of its own. A bundle is read and checked in *pieces*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.weights import formats
from kvdrive.weights.formats import CODES, DTYPES

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
Table = NDArray[np.uint32]  # a checksum for each piece
PAGE = abi.PAGE_BYTES
PIECE_BYTES = 512 * 1024  # between 256 KiB and 1 MiB: a disk reaches its bandwidth, and a read ends soon
_PART_ALIGNMENT = 64  # bytes; vector loads of every instruction set


def rounded_up(count: int, step: int) -> int:
    """The first multiple of `step` that is not less than `count`."""
    return -(-count // step) * step


@dataclass(frozen=True)
class Part:
    """A piece of a tensor in a bundle: its name in the module, format (`formats`), shape, and byte offset there."""

    name: str
    format: str
    shape: tuple[int, ...]
    offset: int

    @property
    def numbers(self) -> int:
        """How many numbers the part has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size on flash."""
        return formats.stored_bytes(self.format, self.numbers)

    def is_in(self, dtype: torch.dtype) -> bool:
        """True if the numbers are stored in this precision."""
        return DTYPES.get(self.format) is dtype

    def encode(self, numbers: torch.Tensor) -> U8:
        """Numbers [*shape] as they are stored, [bytes]."""
        found: U8 = formats.encode(self.format, numbers).numpy()
        return found

    def view(self, bundles: torch.Tensor) -> torch.Tensor:
        """The part of bundles [..., stride] as it lies there: [..., *shape], or [..., bytes] of codes."""
        stored = bundles[..., self.offset : self.offset + self.bytes]
        if self.format in CODES:
            return stored
        return stored.view(DTYPES[self.format]).view(*stored.shape[:-1], *self.shape)

    def numbers_of(self, stored: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """What `view` has returned -> [..., *shape] in this precision."""
        if self.format not in CODES:
            return stored.to(dtype)
        return formats.decode(self.format, stored, self.numbers, dtype).view(*stored.shape[:-1], *self.shape)


def place_parts(tensors: Sequence[tuple[str, str, Sequence[int]]]) -> tuple[tuple[Part, ...], int]:
    """Parts (name, format, shape) one behind the other in a bundle, and the bytes of the bundle in whole pages."""
    parts, end = [], 0
    for name, one, shape in tensors:
        part = Part(name, one, tuple(shape), rounded_up(end, _PART_ALIGNMENT))
        parts.append(part)
        end = part.offset + part.bytes
    return tuple(parts), rounded_up(end, PAGE)


@dataclass(frozen=True)
class Array:
    """Equal bundles one behind the other: the experts or neurons of a module, or one tensor that stays in memory.

    `name`: the module, or the tensor. `offset`: of the first bundle in the file; `stride`: bytes of a bundle;
    `first_piece`: number of its first piece in the table of checksums.
    """

    name: str
    kind: str
    count: int
    stride: int
    offset: int
    first_piece: int
    parts: tuple[Part, ...]

    def pieces_of_bundle(self, piece_bytes: int) -> int:
        """Pieces of each bundle; the last one of a bundle may be shorter."""
        return -(-self.stride // piece_bytes)

    @property
    def bytes(self) -> int:
        """All bundles together."""
        return self.count * self.stride

    def bundle(self, index: int) -> int:
        """Byte offset of a bundle in the file."""
        return self.offset + index * self.stride

    def bytes_in(self, dtype: torch.dtype) -> int:
        """Bytes of the numbers of one bundle in memory, in this precision."""
        return sum(part.numbers for part in self.parts) * int(dtype.itemsize)

    def as_json(self) -> dict[str, Any]:
        """The fields for the manifest."""
        parts = [[part.name, part.format, list(part.shape), part.offset] for part in self.parts]
        return {name: getattr(self, name) for name in _FIELDS} | {"parts": parts}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Array:
        """The array with these fields. Raises KeyError, TypeError, ValueError for other fields."""
        parts = tuple(Part(name, one, tuple(shape), offset) for name, one, shape, offset in fields["parts"])
        if not all(part.format in (*DTYPES, *CODES) for part in parts):
            raise ValueError("an unknown format")
        return cls(**{name: fields[name] for name in _FIELDS}, parts=parts)


_FIELDS = ("name", "kind", "count", "stride", "offset", "first_piece")
EXPERTS, NEURONS, RESIDENT = "experts", "neurons", "resident"
