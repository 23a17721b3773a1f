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
    contents = tuple(int.from_bytes(data[at : at + size], "little") for at in _places(root, piece.key, 0))
    width = max(1, *(value.bit_length() for value in contents))
    fields = [str(which) for kind, which in piece.key if kind == "item"]
    name = names.fresh("_".join([cpp_name(linker_name), *fields]))
    return Array(name, width, len(contents), initial=contents, location=location)


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
