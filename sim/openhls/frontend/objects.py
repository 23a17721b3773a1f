# SPDX-License-Identifier: Apache-2.0
"""Memory of a function: which elements of which array a load or a store touches.

An object (a local variable, or what a reference points to) is a tree of its type. Levels of arrays that are only ever
indexed by constants fall apart into separate arrays, as do the fields of structs; the others become one index. So
`struct { T a, b; } x[4][100]` with x[k][i], k always a constant, is eight arrays of 100 elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from openhls.errors import Unsupported
from openhls.frontend.llvm_text import Instruction, Number, Operand
from openhls.frontend.types import Array, Int, Struct, Type
from openhls.ir import Location

STREAM_BYTES = (2 << 20) + 192  # of the stream in the shim, as are the places below
READ_AT, WRITE_AT, EMPTY_AT, FULL_AT, DEPTH_AT = 0, 1 << 20, 2 << 20, (2 << 20) + 64, (2 << 20) + 128

Step = tuple[str, int]  # ("field", which), ("item", which) or ("any", 0)
Path = tuple[Step, ...]


@dataclass(frozen=True)
class Address:
    """`base` (a local name or "@" and a table), plus bytes, plus indices times strides."""

    base: str
    offset: int = 0
    terms: tuple[tuple[Operand, int], ...] = ()

    def moved(self, offset: int) -> Address:
        """The address `offset` bytes further."""
        return Address(self.base, self.offset + offset, self.terms)


def element_address(base: Address, it: Instruction) -> Address:
    """The address a getelementptr computes."""
    offset, terms = base.offset, list(base.terms)
    current = it.flag
    for position, index in enumerate(it.operands[1:]):
        if position > 0:
            if isinstance(current, Struct):
                assert isinstance(index, Number)
                offset += current.offsets()[index.bits]
                current = current.fields[index.bits]
                continue
            assert isinstance(current, Array)
            current = current.element
        stride = current.size  # type: ignore[attr-defined]
        if isinstance(index, Number):
            offset += (index.bits - (1 << index.width if index.bits >> (index.width - 1) else 0)) * stride
        else:
            terms.append((index, stride))
    return Address(base.base, offset, tuple(terms))


@dataclass(frozen=True)
class Index:
    """The index at one level of arrays: a constant plus values times factors."""

    length: int
    constant: int
    terms: tuple[tuple[Operand, int], ...]


@dataclass(frozen=True)
class Walk:
    """Where an access is: the steps from the root of the type, the index of each array level on the way, and what it
    touches there: `size` bytes from `offset` on of an object of type `at`."""

    steps: Path  # with ("any", 0) for each array level
    indices: tuple[Index, ...]
    at: Type
    offset: int
    size: int


def walk(root: Type, address: Address, size: int, location: Location) -> Walk:
    """Follows the type as long as one member holds all that is touched.

    Compilers add up constants, so x[2][j - 1] comes as 124 bytes and j times 4: row 1 and j + 15, to follow the type
    alone. Of several such readings it is the one whose constants in varying indices are smallest; if it is not what
    was meant, its index is beyond the array, and a run stops there.
    """
    ways = _ways(root, address.offset, address.terms, size, location)
    best = min(ways, key=lambda way: way.cost, default=None)
    if best is None:
        raise Unsupported(
            location, "an address that does not follow the array's type", "index the array by its own dimensions"
        )
    return Walk(best.steps, best.indices, best.at, best.offset, size)


Terms = tuple[tuple[Operand, int], ...]


@dataclass(frozen=True)
class _Way:
    """A reading of an address: see Walk; `cost` is how far constants lead away from varying indices."""

    cost: float
    steps: Path
    indices: tuple[Index, ...]
    at: Type
    offset: int


def _ways(at: Type, offset: int, terms: Terms, size: int, location: Location) -> Iterator[_Way]:
    """All readings of an address in an object of type `at`."""
    members = _fields(at, offset, terms, size) if isinstance(at, Struct) else []
    if isinstance(at, Array):
        members = _elements(at, offset, terms, size, location)
    for cost, step, index, member, inside, rest in members:
        for way in _ways(member, inside, rest, size, location):
            yield _Way(cost + way.cost, (step, *way.steps), (*index, *way.indices), way.at, way.offset)
    if not members and not terms:
        yield _Way(0, (), (), at, offset)


_Member = tuple[float, Step, tuple[Index, ...], Type, int, Terms]  # cost, step, index, type, offset in it, terms left


def _fields(of: Struct, offset: int, terms: Terms, size: int) -> list[_Member]:
    """The field that holds all that is touched; those with arrays in them if an index varies."""
    fields = list(enumerate(zip(of.offsets(), of.fields, strict=False)))
    if terms:
        fields = [(n, (start, kind)) for n, (start, kind) in fields if _holds_arrays(kind)]
    else:
        fields = [(n, (at, kind)) for n, (at, kind) in fields if at <= offset and offset + size <= at + kind.size]
    return [(0, ("field", which), (), kind, offset - start, terms) for which, (start, kind) in fields]


def _elements(of: Array, offset: int, terms: Terms, size: int, location: Location) -> list[_Member]:
    """The element that is touched, and the next one if indices further in vary."""
    stride = of.element.size
    mine = tuple((value, step // stride) for value, step in terms if step % stride == 0)
    rest = tuple((value, step) for value, step in terms if step % stride != 0)
    first, inside = divmod(offset, stride)
    if not terms and inside + size > stride:
        return []
    if not terms and not 0 <= first < of.length:
        raise Unsupported(location, f"index {first} of an array of {of.length}", "stay inside the array")
    return [
        (
            abs(n) / of.length if mine else 0,
            ("any", 0),
            (Index(of.length, n, mine),),
            of.element,
            offset - n * stride,
            rest,
        )
        for n in ((first, first + 1) if rest else (first,))
        if mine or 0 <= n < of.length
    ]


def _holds_arrays(of: Type) -> bool:
    return isinstance(of, Array) or (isinstance(of, Struct) and any(_holds_arrays(kind) for kind in of.fields))


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
    """Whether clang may mean one wide number."""
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

    def merge(self, other: Shape) -> bool:
        """Adds what another function knows; whether that was new."""
        before = len(self.dynamic) + len(self.blobs)
        self.dynamic |= other.dynamic
        self.blobs |= other.blobs
        return len(self.dynamic) + len(self.blobs) != before

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
