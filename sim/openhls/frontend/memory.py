# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of a process: from addresses to arrays of the program, with their pragmas."""

from __future__ import annotations

import math

from openhls.errors import Unsupported
from openhls.frontend.addresses import Address, Index, Path, walk
from openhls.frontend.context import Object
from openhls.frontend.draft import Draft
from openhls.frontend.llvm.module import Variable
from openhls.frontend.objects import Piece, Shape, array_levels, choices, pieces
from openhls.frontend.pragmas import Pragma
from openhls.frontend.tables import make_table
from openhls.frontend.types import Int, Type
from openhls.ir import TRUE, Array, Const, Location, Opcode, Operand, Partition
from openhls.names import cpp_name

_MANY = 64  # accesses to one array by a single copy


class Memory:
    """The arrays of a process, made when they are first needed, by object and leaf."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._context = draft.context
        self._builder = draft.builder
        self.arrays: dict[tuple[str, Path], Array] = {}
        self._strides: dict[tuple[str, Path], tuple[int, ...]] = {}  # elements from one index of a level to the next
        self.stored: set[tuple[str, Path]] = set()

    # ---- arrays ----

    def array(self, base: str, held: Object, piece: Piece) -> Array:
        """The array of a leaf."""
        key = (base, piece.key)
        if key not in self.arrays:
            levels = array_levels(held.root, piece.key)
            lengths = [length for length, varying in levels if varying]
            partition, factor = self._partition(held, levels) if lengths else (Partition.COMPLETE, 1)
            strides = [math.prod(lengths[number + 1 :]) for number in range(len(lengths))]
            block = 0
            if held.is_local and len(lengths) > 1 and partition in (Partition.BLOCK, Partition.CYCLIC):
                strides, factor, block = _padded(lengths, partition)
            length = lengths[0] * strides[0] if lengths else 1
            self._strides[key] = tuple(strides)
            wish = "_".join([held.name, *choices(held.root, piece.key)])
            known = self._draft.reserved.get(wish) if base in self._draft.reserved else None
            name = known or self._draft.names.fresh(wish)
            self.arrays[key] = Array(
                name,
                8 * piece.leaf_size,
                length,
                partition,
                factor,
                self._storage(held),
                external=held.external and bool(lengths),
                location=held.variables[0].location if held.variables else self._context.function.location,
                block=block,
            )
        return self.arrays[key]

    def declare(self, base: str, held: Object, key: Path) -> Array:
        """The array of a leaf that is not accessed here, but by a stage."""
        at = held.root
        for kind, which in key:
            at = at.fields[which] if kind == "field" else at.element  # type: ignore[union-attr]
        return self.array(base, held, Piece(key, (), at.size, 0, at.size, 0))

    def _pragmas(self, variables: list[Variable], *kinds: str) -> list[Pragma]:
        return [
            note.pragma
            for note in self._draft.notes.variables
            for variable in variables
            if note.pragma.kind in kinds
            and note.pragma.options.get("variable", "") == variable.name
            and note.pragma.location.file == variable.location.file
            and note.first_line <= variable.location.line <= note.last_line
        ]

    def _partition(self, held: Object, levels: list[tuple[int, bool]]) -> tuple[Partition, int]:
        """What ARRAY_PARTITION means for the levels that stayed an index, flattened row by row."""
        varying = [dimension for dimension, (_, stays) in enumerate(levels, 1) if stays]
        complete: set[int] = set()
        # Elements of one word (ARRAY_RESHAPE) can be accessed at the same time, as those of several memories can.
        for pragma in self._pragmas(held.variables, "ARRAY_PARTITION", "ARRAY_RESHAPE"):
            dimension = pragma.number("dim", 1)
            kind = pragma.options.get("type", next(iter(pragma.words & {"complete", "cyclic", "block"}), "complete"))
            covered = varying if dimension == 0 else [d for d in varying if d == dimension]
            if kind == "complete":
                complete.update(covered)
            elif covered and len(varying) == 1:
                factor, length = pragma.number("factor", 2), levels[varying[0] - 1][0]
                divisor = factor if kind == "cyclic" else -(-length // factor)
                if divisor & (divisor - 1) == 0:
                    return Partition(kind), factor
                advice = f"use a power of two as {'factor' if kind == 'cyclic' else 'length of each block'}"
                self._draft.notes.warn(pragma.location, f"{pragma.kind} has no effect: {advice}")
        if complete == set(varying) and complete:
            return Partition.COMPLETE, 1
        if complete == {varying[-1]}:
            return Partition.CYCLIC, levels[varying[-1] - 1][0]
        if complete == {varying[0]}:
            return Partition.BLOCK, levels[varying[0] - 1][0]
        return Partition.NONE, 1

    def _storage(self, held: Object) -> tuple[str, str]:
        for pragma in self._pragmas(held.variables, "BIND_STORAGE"):
            return pragma.options.get("type", "").lower(), pragma.options.get("impl", "").lower()
        return "", ""

    def depth(self, variables: list[Variable]) -> int | None:
        """The depth that a STREAM pragma gives."""
        for pragma in self._pragmas(variables, "STREAM"):
            return pragma.number("depth", 2)
        return None

    def named(self, variable: str, near: Location) -> list[Array]:
        """The arrays of the variable of that name that is declared last before a line."""
        best, found = -1, list[Array]()
        for (base, _), array in self.arrays.items():
            for declared in self._context.objects[base].variables if base in self._context.objects else []:
                place = declared.location
                if declared.name == variable and place.file == near.file and best <= place.line <= near.line:
                    found = [*found, array] if place.line == best else [array]
                    best = place.line
        return found

    # ---- accesses ----

    def load(self, address: Address, of: Type, predicate: Operand, hint: str, location: Location) -> Operand:
        """The value at an address."""
        if not isinstance(of, Int):
            raise Unsupported(
                location, "a load of something that is not a number", "keep to integers, arrays and streams"
            )
        if address.base.startswith("@") and address.base not in self._context.objects:
            return self._low_bits(self._load_table(address, of, predicate, hint, location), of.width)
        held = self._object(address, location)
        parts = []
        for piece in self._pieces(held, address, of.size, location):
            array = self.array(address.base, held, piece)
            value = self._load_piece((address.base, piece.key), array, piece, predicate, hint)
            parts.append(self._builder.make(Opcode.EXTRACT, 8 * piece.size, value, low=8 * piece.low))
        return self._low_bits(self._builder.make(Opcode.CONCAT, 8 * of.size, *reversed(parts), hint=hint), of.width)

    def _load_piece(self, key: tuple[str, Path], array: Array, piece: Piece, predicate: Operand, hint: str) -> Operand:
        index = self._index(piece.indices, array, self._strides[key])
        row = _row(array, piece)
        return self._builder.access(Opcode.LOAD, array.name, (index,), array.width, predicate, hint, row)

    def store(self, address: Address, value: Operand, size: int, predicate: Operand, location: Location) -> None:
        """Stores a value; its bytes above its width become 0."""
        held = self._object(address, location)
        if value.width < 8 * size:
            value = self._builder.make(Opcode.ZEXT, 8 * size, value)
        for piece in self._pieces(held, address, size, location):
            key, array = (address.base, piece.key), self.array(address.base, held, piece)
            part = self._builder.make(Opcode.EXTRACT, 8 * piece.size, value, low=8 * piece.position)
            if piece.size != piece.leaf_size:
                part = self._draft.merged(self._load_piece(key, array, piece, predicate, ""), part, 8 * piece.low)
            self.stored.add((address.base, piece.key))
            index = self._index(piece.indices, array, self._strides[key])
            self._builder.access(Opcode.STORE, array.name, (index, part), 0, predicate, row=_row(array, piece))

    def _object(self, address: Address, location: Location) -> Object:
        held = self._context.objects.get(address.base)
        if held is None:
            raise Unsupported(location, f"memory behind the pointer {address.base}", "pass streams and scalars")
        return held

    def _pieces(self, held: Object, address: Address, size: int, location: Location) -> list[Piece]:
        found = pieces(walk(held.root, address.moved(held.offset), size, location), held.shape)
        keys = [piece.key for piece in found]
        if max((keys.count(key) for key in set(keys)), default=0) > _MANY:
            raise Unsupported(location, "an array is set or copied as a whole", "write the loop, and pipeline it")
        return found

    def _low_bits(self, value: Operand, width: int) -> Operand:
        return self._builder.make(Opcode.EXTRACT, width, value)

    def _index(self, indices: tuple[Index, ...], array: Array, strides: tuple[int, ...]) -> Operand:
        """The flat index. Unless its value shows that it needs no more, it has a bit more than the elements have
        numbers, so that a run finds indices beyond the array."""
        least = max(1, (array.length - 1).bit_length())
        index = self._flat(indices, strides, least + 1)
        return self._low_bits(index, least) if self._builder.zeros_above(index) else index

    def _flat(self, indices: tuple[Index, ...], strides: tuple[int, ...], width: int) -> Operand:
        total: Operand = Const(width, 0)
        for index, stride in zip(indices, strides, strict=True):
            total = self._add(total, Const(width, index.constant * stride % (1 << width)))
            for value, factor in index.terms:
                term = self._resized(self._draft.operand(value), width)
                scale = Const(width, factor * stride % (1 << width))
                total = self._add(total, self._builder.make(Opcode.MUL, width, term, scale))
        return total

    def _add(self, a: Operand, b: Operand) -> Operand:
        return self._builder.make(Opcode.ADD, a.width, a, b)

    def _resized(self, value: Operand, width: int) -> Operand:
        """Indices are signed; a flat index needs its low bits only."""
        if value.width < width:
            return self._builder.make(Opcode.SEXT, width, value)
        return self._builder.make(Opcode.EXTRACT, width, value)

    def _load_table(self, address: Address, of: Int, predicate: Operand, hint: str, location: Location) -> Operand:
        """A load from a constant table: a constant, or an array that is never stored to."""
        name = address.base[1:]
        if name not in self._draft.module.tables:
            advice = "keep to integers, arrays and structs of them, with initial values that the source computes"
            raise Unsupported(location, f"the global or static variable {cpp_name(name)}", advice)
        data, root = self._draft.module.tables[name]
        if not address.terms:
            return Const(8 * of.size, int.from_bytes(data[address.offset : address.offset + of.size], "little"))
        shape = Shape()
        found = walk(root, address, of.size, location)
        shape.learn(found)
        parts = []
        for piece in pieces(found, shape):
            key = (address.base, piece.key)
            if key not in self.arrays:
                self.arrays[key] = make_table(name, root, data, piece, self._draft.names, location)
                lengths = [index.length for index in piece.indices]
                self._strides[key] = tuple(math.prod(lengths[number + 1 :]) for number in range(len(lengths)))
            value = self._load_piece(key, self.arrays[key], piece, predicate, hint)
            whole = self._builder.make(Opcode.ZEXT, 8 * piece.leaf_size, value)
            parts.append(self._builder.make(Opcode.EXTRACT, 8 * piece.size, whole, low=8 * piece.low))
        return self._builder.make(Opcode.CONCAT, 8 * of.size, *reversed(parts))

    def load_leaf(self, base: str, key: Path, predicate: Operand = TRUE) -> Operand:
        """The only element of a leaf that is not indexed."""
        array = self.arrays[(base, key)]
        return self._builder.access(Opcode.LOAD, array.name, (Const(1, 0),), array.width, predicate)

    def store_leaf(self, base: str, key: Path, value: Operand, predicate: Operand = TRUE) -> None:
        """Sets the only element of a leaf that is not indexed."""
        self.stored.add((base, key))
        self._builder.access(Opcode.STORE, self.arrays[(base, key)].name, (Const(1, 0), value), 0, predicate)


def _padded(lengths: list[int], partition: Partition) -> tuple[list[int], int, int]:
    """Strides of the levels of an array whose banks are found without a division, how many banks it has, and how many
    elements of a block are used (0: all). Rows that are blocks, and elements beside each other that are in different
    banks, are as many as the next power of two."""
    inner = math.prod(lengths[1:])
    strides = [math.prod(lengths[number + 1 :]) for number in range(len(lengths))]
    if partition is Partition.BLOCK:
        strides[0] = 1 << (inner - 1).bit_length()
        return strides, lengths[0], inner if strides[0] != inner else 0
    banks = 1 << (lengths[-1] - 1).bit_length()
    return [stride // lengths[-1] * banks for stride in strides[:-1]] + [1], banks, 0


def _row(array: Array, piece: Piece) -> int | None:
    """The first index of an access to an array whose rows are apart, if it is constant."""
    first, *rest = piece.indices or (None,)
    if array.partition is not Partition.BLOCK or not rest or first is None or first.terms:
        return None
    return first.constant if 0 <= first.constant < first.length else None
