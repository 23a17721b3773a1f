# SPDX-License-Identifier: Apache-2.0
"""Where arrays live: registers, tables, or banks of memory with a port to read and one to write, or two for both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from openhls.analysis.affine import Affine, affine_index
from openhls.errors import Unsupported
from openhls.ir import Array, Opcode, Operand, Operation, Partition, Program


class Kind(Enum):
    """REGISTERS: one register per element, read at once and by all. TABLE: constants, as logic. RAM: memory banks."""

    REGISTERS = "registers"
    TABLE = "table"
    RAM = "ram"


SMALL_TABLE = 64  # entries that are read within the cycle


@dataclass(frozen=True)
class Storage:
    """An array and its banks: `factor` of them, of `bank_length` elements."""

    array: Array
    kind: Kind
    factor: int
    bank_length: int
    cyclic: bool = True

    @property
    def index_bits(self) -> int:
        """Bits of an index of the whole array."""
        return max(1, (self.array.length - 1).bit_length())

    @property
    def bank_bits(self) -> int:
        """Bits of an index that choose the bank."""
        return (self.factor - 1).bit_length()

    @property
    def address_bits(self) -> int:
        """Bits of an address in a bank."""
        return max(1, (self.bank_length - 1).bit_length())

    @property
    def words(self) -> int:
        """The elements of a bank that are used."""
        return self.array.block or self.bank_length

    @property
    def load_latency(self) -> int:
        if self.kind is Kind.RAM:
            return 1
        return 1 if self.kind is Kind.TABLE and self.array.length > SMALL_TABLE else 0

    def second(self) -> Storage:
        """Another buffer of the same form."""
        return replace(self, array=replace(self.array, name=f"{self.array.name}_second"))

    @property
    def ram_style(self) -> str:
        """For the synthesis attribute, from BIND_STORAGE."""
        styles = {"bram": "block", "lutram": "distributed", "uram": "ultra"}
        return styles.get(self.array.storage[1], "auto")

    def bank_of(self, access: Operation, definitions: dict[str, Operation]) -> int | None:
        """The bank that an access always goes to, or None."""
        if self.factor == 1:
            return 0
        if access.row is not None and not self.cyclic:
            return access.row
        form = index_form(access.operands[0], self, definitions)
        if self.cyclic and all(factor % self.factor == 0 for _, factor in form.terms):
            return form.constant % self.factor
        return form.constant // self.bank_length if not form.terms else None


def storage_of(array: Array) -> Storage:
    """Raises Unsupported for a partition into banks that need a division."""
    if array.initial is not None:
        return Storage(array, Kind.TABLE, 1, array.length)
    if array.partition is Partition.COMPLETE:
        return Storage(array, Kind.REGISTERS, 1, array.length)
    if array.partition is Partition.NONE or array.factor == 1:
        return Storage(array, Kind.RAM, 1, array.length)
    cyclic = array.partition is Partition.CYCLIC
    bank_length = -(-array.length // array.factor)
    divisor = array.factor if cyclic else bank_length
    if divisor & (divisor - 1):
        raise Unsupported(
            array.location,
            f"array {array.name} has {array.factor} banks, which would need a division to find an element",
            f"use a power of two as {'factor' if cyclic else 'length of each block'}",
        )
    return Storage(array, Kind.RAM, array.factor, bank_length, cyclic)


def without_ultra_ram(program: Program) -> Program:
    """The program for a device that has no UltraRAM: what asks for it is in block RAM."""

    def fitted(array: Array) -> Array:
        kind, place = array.storage
        return replace(array, storage=(kind, "bram")) if place == "uram" else array

    processes = {
        name: replace(each, arrays=tuple(fitted(array) for array in each.arrays))
        for name, each in program.processes.items()
    }
    return replace(program, processes=processes)


def ports_of(
    operation: Operation, storage: Storage, definitions: dict[str, Operation]
) -> tuple[tuple[str, str, int], ...]:
    """The ports that an access occupies for a cycle: (array, "read", "write" or the number of a port, bank)."""
    if storage.kind is not Kind.RAM:
        return ()
    port = "read" if operation.opcode is Opcode.LOAD else "write"
    if storage.array.two_ports:
        port = str(operation.port)
    bank = storage.bank_of(operation, definitions)
    banks = range(storage.factor) if bank is None else (bank,)
    return tuple((storage.array.name, port, number) for number in banks)


def index_form(index: Operand, storage: Storage, definitions: dict[str, Operation]) -> Affine:
    """The index as an affine form, modulo the power of two that covers the array."""
    return affine_index(index, storage.index_bits, definitions)
