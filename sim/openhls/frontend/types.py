# SPDX-License-Identifier: Apache-2.0
"""Types of LLVM IR, with their sizes in memory on the target that clang was asked for (x86-64)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Int:
    """An integer of `width` bits."""

    width: int

    @property
    def size(self) -> int:
        """Bytes that a load or a store of it touches, padded to its alignment."""
        size = (self.width + 7) // 8
        return -(-size // self.align) * self.align

    @property
    def align(self) -> int:
        """Bytes."""
        size = (self.width + 7) // 8
        return next((align for align in (1, 2, 4, 8) if size <= align), 16)


@dataclass(frozen=True)
class Pointer:
    """Any pointer."""

    size: int = 8
    align: int = 8


@dataclass(frozen=True)
class Void:
    """No value, and the types that have none here (labels, metadata)."""

    size: int = 0
    align: int = 1


@dataclass(frozen=True)
class Array:
    """`length` elements."""

    length: int
    element: Type

    @property
    def size(self) -> int:
        """Bytes."""
        return self.length * self.element.size

    @property
    def align(self) -> int:
        """Bytes."""
        return self.element.align


@dataclass(frozen=True)
class Struct:
    """Fields in order; without padding if `packed`."""

    fields: tuple[Type, ...]
    packed: bool = False

    @property
    def align(self) -> int:
        """Bytes."""
        return 1 if self.packed else max((field.align for field in self.fields), default=1)

    def offsets(self) -> list[int]:
        """Offset of each field, then the size of the whole."""
        offsets, position = [], 0
        for field in self.fields:
            if not self.packed:
                position = -(-position // field.align) * field.align
            offsets.append(position)
            position += field.size
        return [*offsets, -(-position // self.align) * self.align]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.offsets()[-1]


@dataclass(frozen=True)
class Other:
    """A type outside the subset: float, double, vectors."""

    text: str
    size: int = 8
    align: int = 8


Type = Int | Pointer | Void | Array | Struct | Other
