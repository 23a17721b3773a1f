# SPDX-License-Identifier: Apache-2.0
"""Stores to the fields of a struct in memory that together store all of it: they become one store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from openhls.frontend.addresses import Address
from openhls.frontend.llvm.module import Instruction
from openhls.frontend.types import Array, Struct, Type


@dataclass
class Together:
    """The `stores` to one element of `size` bytes, which begins at `first`; no access to the memory is between them."""

    first: Address
    size: int
    stores: list[Instruction] = field(default_factory=list)
    bytes: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Access:
    """A load or a store of `size` bytes at `address`, perhaps `chosen` among several at run time."""

    it: Instruction
    address: Address
    size: int
    stores: bool
    chosen: bool = False


def stored_together(
    blocks: Iterable[Sequence[Access]], elements: Mapping[str, tuple[int, set[int]]]
) -> dict[int, Together]:
    """The stores to those memories whose elements are only stored as a whole, by their ids.

    `elements`: for each memory the bytes of an element, and those of its bytes that have to be stored.
    """
    found: dict[str, list[Together]] = {name: [] for name in elements}
    for block in blocks:
        for name in list(found):
            groups = whole_stores([each for each in block if each.address.base == name], *elements[name])
            if groups is None:
                del found[name]
            else:
                found[name] += groups
    return {id(it): group for groups in found.values() for group in groups for it in group.stores}


def whole_stores(accesses: Sequence[Access], size: int, needed: set[int]) -> list[Together] | None:
    """The stores of a block to one memory, element by element; None if one of its elements is stored in part.

    `size`: bytes of an element; `needed`: those of its bytes that have to be stored.
    """
    groups: list[Together] = []
    for access in accesses:
        at = access.address.offset % size
        first = access.address.moved(-at)
        is_open = bool(groups) and not groups[-1].bytes >= needed
        inside = at + access.size <= size and all(stride % size == 0 for _, stride in first.terms)
        if is_open and not (access.stores and groups[-1].first == first):
            return None
        if not access.stores:
            continue
        if not inside or access.chosen:
            return None
        if not is_open:
            groups.append(Together(first, size))
        groups[-1].stores.append(access.it)
        groups[-1].bytes |= set(range(at, at + access.size))
    return groups if not groups or groups[-1].bytes >= needed else None


def used_bytes(of: Type, first: int = 0) -> Iterable[int]:
    """The bytes of a type that are not padding."""
    if isinstance(of, Struct):
        for start, kind in zip(of.offsets(), of.fields, strict=False):
            yield from used_bytes(kind, first + start)
    elif isinstance(of, Array):
        for which in range(of.length):
            yield from used_bytes(of.element, first + which * of.element.size)
    else:
        yield from range(first, first + of.size)
