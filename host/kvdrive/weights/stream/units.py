"""Units: tensors that are read together, such as those of a layer, as ranges of whole pages of the files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from kvdrive.errors import UnsupportedError
from kvdrive.weights.bundles import PAGE, rounded_up
from kvdrive.weights.stream.stored import Stored

_ALIGNMENT = 64  # bytes, of converted tensors


@dataclass(frozen=True)
class Extent:
    """`bytes` of file number `file` at `start`, both whole pages, which lie at `at` in the memory of their unit."""

    file: int
    start: int
    bytes: int
    at: int


@dataclass(frozen=True)
class Tensor:
    """A tensor of a unit: the parameters `names` of the model, which compute in `dtype`.

    `at`: byte offset in the unit's memory; `converted_at`: in the memory for converted tensors, -1 where it is
    computed as it is stored.
    """

    names: tuple[str, ...]
    stored: Stored
    dtype: torch.dtype
    at: int
    converted_at: int

    def view(self, memory: torch.Tensor) -> torch.Tensor:
        """The numbers as they are stored, in the unit's memory uint8 [bytes]."""
        return memory[self.at : self.at + self.stored.bytes].view(self.stored.dtype).view(self.stored.shape)

    def convert(self, memory: torch.Tensor, converted: torch.Tensor) -> torch.Tensor:
        """The numbers in the precision of the computation: a view of `memory`, or of `converted`, uint8 [bytes]."""
        if self.converted_at < 0:
            return self.view(memory)
        place = converted[self.converted_at : self.converted_at + self.stored.numbers * self.dtype.itemsize]
        return place.view(self.dtype).view(self.stored.shape).copy_(self.view(memory))


@dataclass(frozen=True)
class Unit:
    """Tensors that are read together. `bytes`: its memory as it is stored; `converted`: that for converted tensors."""

    name: str
    extents: tuple[Extent, ...]
    tensors: tuple[Tensor, ...]
    bytes: int
    converted: int

    @property
    def held(self) -> int:
        """Bytes that it takes where it stays in memory."""
        if not self.converted:
            return self.bytes
        return sum(rounded_up(one.stored.numbers * one.dtype.itemsize, _ALIGNMENT) for one in self.tensors)


def unit_of(name: str, tensors: Iterable[tuple[tuple[str, ...], Stored, torch.dtype]]) -> Unit:
    """The unit of these tensors: names of parameters, place, and precision of the computation.

    Raises UnsupportedError for tensors that no view of a file's bytes can be.
    """
    ordered = sorted(tensors, key=lambda one: (one[1].file, one[1].offset))
    extents: list[Extent] = []
    placed: list[Tensor] = []
    size = converted = 0
    for names, stored, dtype in ordered:
        if stored.offset % stored.dtype.itemsize:
            raise UnsupportedError(
                f"{stored.key} does not lie at a multiple of {stored.dtype.itemsize} bytes in its file: load the "
                "checkpoint and save it again with save_pretrained"
            )
        start, end = stored.offset // PAGE * PAGE, rounded_up(stored.offset + stored.bytes, PAGE)
        last = extents[-1] if extents else None
        if last is not None and last.file == stored.file and start <= last.start + last.bytes:
            longer = max(end, last.start + last.bytes) - last.start
            size += longer - last.bytes
            extents[-1] = Extent(last.file, last.start, longer, last.at)
        else:
            extents.append(Extent(stored.file, start, end - start, size))
            size += end - start
        at, place = extents[-1].at + stored.offset - extents[-1].start, -1
        if stored.dtype is not dtype:
            place = converted
            converted += rounded_up(stored.numbers * dtype.itemsize, _ALIGNMENT)
        placed.append(Tensor(names, stored, dtype, at, place))
    return Unit(name, tuple(extents), tuple(placed), size, converted)
