# SPDX-License-Identifier: Apache-2.0
"""Memory of a function: which elements of which array a load or a store touches.

An object (a local variable, or what a reference points to) is a tree of its type. Levels of arrays that are only ever
indexed by constants fall apart into separate arrays, as do the fields of structs; the others become one index. So
`struct { T a, b; } x[4][100]` with x[k][i], k always a constant, is eight arrays of 100 elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.frontend.addresses import Index, Path, Step, Walk
from openhls.frontend.types import Array, Int, Struct, Type


def leaves(of: Type, blobs: set[Path], prefix: Path = ()) -> list[tuple[Path, int, int]]:
    """The numbers in a type: steps, offset and size in bytes. Bytes that are accessed as one are one."""
    wildcard = tuple(("any", 0) if kind == "item" else (kind, which) for kind, which in prefix)
    if wildcard in blobs or isinstance(of, Int) or not isinstance(of, Array | Struct):
        return [(prefix, 0, of.size)]
    found = []
    if isinstance(of, Array):
        members = [(("item", i), i * of.element.size, of.element) for i in range(of.length)]
    else:
        members = [
            (("field", i), start, kind) for i, (start, kind) in enumerate(zip(of.offsets(), of.fields, strict=False))
        ]
    for step, start, kind in members:
        found += [(path, start + offset, size) for path, offset, size in leaves(kind, blobs, (*prefix, step))]
    return found


def is_bytes(of: Type) -> bool:
    """True if clang may mean one wide number."""
    return isinstance(of, Array) and of.element == Int(8)


@dataclass
class Shape:
    """What all accesses to an object have in common: levels with a varying index, and bytes that are one number."""

    dynamic: set[Path] = field(default_factory=set)
    blobs: set[Path] = field(default_factory=set)

    def learn(self, found: Walk) -> None:
        """Takes one access into account."""
        position = 0
        for depth, (kind, _) in enumerate(found.steps):
            if kind == "any":
                if found.indices[position].terms:
                    self.dynamic.add(found.steps[: depth + 1])
                position += 1
        if is_bytes(found.at) and found.offset == 0 and found.size == found.at.size and found.size > 1:
            self.blobs.add(found.steps)

    def frozen(self) -> tuple[frozenset[Path], frozenset[Path]]:
        """As a key."""
        return frozenset(self.dynamic), frozenset(self.blobs)


@dataclass(frozen=True)
class Piece:
    """A part of an access: bytes `low` to `low + size` of the leaf array `key`, at `indices` of its varying levels.

    `position` is where they are in the value that is loaded or stored; `leaf_size` is the size of an element in bytes.
    """

    key: Path
    indices: tuple[Index, ...]
    leaf_size: int
    low: int
    size: int
    position: int


def pieces(found: Walk, shape: Shape) -> list[Piece]:
    """What an access touches, one piece for each leaf."""
    result = []
    for path, start, size in leaves(found.at, shape.blobs, found.steps):
        first, last = max(start, found.offset), min(start + size, found.offset + found.size)
        if first >= last:
            continue
        key, indices = _resolve(path, found, shape)
        result.append(Piece(key, indices, size, first - start, last - first, first - found.offset))
    return result


def _resolve(path: Path, found: Walk, shape: Shape) -> tuple[Path, tuple[Index, ...]]:
    """Which leaf array a path belongs to, and its indices there."""
    key: list[Step] = []
    indices: list[Index] = []
    lengths = _lengths(found)
    position = 0
    for depth, (kind, which) in enumerate(path):
        if kind == "field":
            key.append((kind, which))
            continue
        wildcard = tuple(("any", 0) if step[0] == "item" else step for step in path[: depth + 1])
        if kind == "any":
            index = found.indices[position]
            position += 1
        else:
            index = Index(lengths.get(wildcard, 0), which, ())
        if wildcard in shape.dynamic:
            key.append(("any", 0))
            indices.append(index)
        else:
            key.append(("item", index.constant))
    return tuple(key), tuple(indices)


def _lengths(found: Walk) -> dict[Path, int]:
    """Lengths of the array levels below the place of an access."""
    lengths: dict[Path, int] = {}

    def visit(of: Type, steps: Path) -> None:
        if isinstance(of, Array):
            lengths[(*steps, ("any", 0))] = of.length
            visit(of.element, (*steps, ("any", 0)))
        elif isinstance(of, Struct):
            for which, kind in enumerate(of.fields):
                visit(kind, (*steps, ("field", which)))

    visit(found.at, found.steps)
    return lengths


def choices(root: Type, key: Path) -> list[str]:
    """Which member the way to a leaf takes, wherever there are several and it is not an index."""
    at, result = root, []
    for kind, which in key:
        if isinstance(at, Struct):
            several, at = len(at.fields) > 1, at.fields[which]
        elif isinstance(at, Array):
            several, at = at.length > 1, at.element
        if several and kind != "any":
            result.append(str(which))
    return result


def array_levels(root: Type, key: Path) -> list[tuple[int, bool]]:
    """Length of each array level on the way to a leaf, and whether it stayed an index."""
    at, result = root, []
    for kind, which in key:
        if isinstance(at, Struct):
            at = at.fields[which]
        elif isinstance(at, Array):
            result.append((at.length, kind == "any"))
            at = at.element
    return result
