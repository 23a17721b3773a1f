# SPDX-License-Identifier: Apache-2.0
"""Constant tables: what loads with a varying index find in them."""

from __future__ import annotations

from collections.abc import Iterator

from openhls.frontend.addresses import Path
from openhls.frontend.objects import Piece
from openhls.frontend.types import Array as ArrayType
from openhls.frontend.types import Struct, Type
from openhls.ir import Array, Location
from openhls.names import Names, cpp_name


def make_table(linker_name: str, root: Type, data: bytes, piece: Piece, names: Names, location: Location) -> Array:
    """The array of the elements that `piece.key` leads to, as wide as the largest of them."""
    size = piece.leaf_size
    contents = elements_of(data, root, piece.key, size)
    width = max(1, *(value.bit_length() for value in contents))
    fields = [str(which) for kind, which in piece.key if kind == "item"]
    name = names.fresh("_".join([cpp_name(linker_name), *fields]))
    return Array(name, width, len(contents), initial=contents, location=location)


def elements_of(data: bytes, root: Type, key: Path, size: int = 0) -> tuple[int, ...]:
    """The elements that `key` leads to; `size`: bytes of each, if not those of the type there."""
    if not size:
        at = root
        for kind, which in key:
            at = at.fields[which] if kind == "field" else at.element  # type: ignore[union-attr]
        size = at.size
    return tuple(int.from_bytes(data[at : at + size], "little") for at in _places(root, key, 0))


def layout(root: Type, key: Path) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Offset of the first element that `key` leads to, and length and stride of each varying level."""
    offset, levels = 0, []
    for kind, which in key:
        if isinstance(root, Struct):
            offset, root = offset + root.offsets()[which], root.fields[which]
        elif isinstance(root, ArrayType):
            if kind == "any":
                levels.append((root.length, root.element.size))
            else:
                offset += which * root.element.size
            root = root.element
    return offset, tuple(levels)


def _places(of: Type, key: Path, offset: int) -> Iterator[int]:
    """Offsets of the elements, in the order of the flat index."""
    if not key:
        yield offset
        return
    (kind, which), *rest = key
    if isinstance(of, Struct):
        yield from _places(of.fields[which], tuple(rest), offset + of.offsets()[which])
    elif isinstance(of, ArrayType):
        for number in range(of.length) if kind == "any" else (which,):
            yield from _places(of.element, tuple(rest), offset + number * of.element.size)
