# SPDX-License-Identifier: Apache-2.0
"""Addresses, and the members of arrays and structs that they mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from openhls.errors import Unsupported
from openhls.frontend.llvm.module import Instruction, Number, Operand
from openhls.frontend.types import Array, Struct, Type
from openhls.ir import Location, signed

STREAM_BYTES = (2 << 20) + 192  # of the stream in the shim, as are the places below
READ_AT, WRITE_AT, EMPTY_AT, FULL_AT, DEPTH_AT = 0, 1 << 20, 2 << 20, (2 << 20) + 64, (2 << 20) + 128

# Far behind a pointer: what the places of hls::burst_maxi mean (shim/hls_burst_maxi.h), and the stream of each.
BURST_AT = 1 << 40
BURST_STREAMS = {BURST_AT: "ar", BURST_AT + 64: "aw", BURST_AT + 128: "b", BURST_AT + 4096: "r", BURST_AT + 8192: "w"}

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
            offset += signed(index.bits, index.width) * stride
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
