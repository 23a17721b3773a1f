# SPDX-License-Identifier: Apache-2.0
"""Which variables each pointer of a function may lead to, and in which steps one moves in them."""

from __future__ import annotations

from dataclasses import dataclass

from openhls.frontend.addresses import STREAM_BYTES, Address, element_address
from openhls.frontend.llvm.module import Function, Global, Instruction, Local, Module, Operand
from openhls.frontend.types import Array, Int, Pointer, Struct, Type

NULL = "null"


def holds_pointers(of: Type) -> bool:
    """True if a pointer is in a type."""
    if isinstance(of, Struct):
        return any(map(holds_pointers, of.fields))
    return holds_pointers(of.element) if isinstance(of, Array) else isinstance(of, Pointer)


def steps_of(of: Type) -> set[int]:
    """Bytes from one element to the next, of all arrays in a type."""
    if isinstance(of, Struct):
        return set().union(*map(steps_of, of.fields))
    return {of.element.size} | steps_of(of.element) if isinstance(of, Array) else set()


@dataclass
class Roots:
    """`made` are the instructions by name. A root is the name of an alloca or a parameter, "@" and the name of a
    global variable, or NULL."""

    module: Module
    function: Function
    made: dict[str, Instruction]

    def __post_init__(self) -> None:
        self._known: dict[str, set[str]] = {}
        self._kept: dict[str, set[str]] = {}  # where the pointers lead that a variable has
        everything = [it for block in self.function.blocks.values() for it in block.instructions]
        size = -1
        while size != (size := sum(map(len, (*self._known.values(), *self._kept.values())))):
            for it in everything:
                if isinstance(it.type, Pointer) and it.opcode != "alloca":
                    self._known[it.name] = self._found(it)
                elif it.opcode == "store" and isinstance(it.types[0], Pointer):
                    self._keep(it.operands[1], self.of(it.operands[0]))
                elif it.opcode == "call" and str(it.flag).startswith(("llvm.memcpy", "llvm.memmove")):
                    self._keep(it.operands[0], self.kept_in(it.operands[1]))

    def _found(self, it: Instruction) -> set[str]:
        if it.opcode in ("getelementptr", "bitcast", "freeze"):
            return self.of(it.operands[0])
        if it.opcode in ("phi", "select"):
            return set().union(*map(self.of, it.operands[1 if it.opcode == "select" else 0 :]))
        return {NULL} | self.kept_in(it.operands[0]) if it.opcode == "load" else set()

    def _keep(self, where: Operand, roots: set[str]) -> None:
        for each in self.of(where):
            self._kept[each] = self._kept.get(each, set()) | roots

    def kept_in(self, where: Operand) -> set[str]:
        """Where the pointers lead that the variable has that `where` leads to."""
        return set[str]().union(*(self._kept.get(each, set()) for each in self.of(where)))

    def of(self, operand: Operand) -> set[str]:
        """Where a pointer may lead."""
        if isinstance(operand, Global):
            return {f"@{operand.name}"}
        if not isinstance(operand, Local):
            return {NULL}
        it = self.made.get(operand.name)
        return {operand.name} if it is None or it.opcode == "alloca" else self._known.get(operand.name, set())

    def is_parameter(self, root: str) -> bool:
        return any(name == root for name, _ in self.function.parameters)

    def type_of(self, root: str) -> Type | None:
        """What lies there; of a parameter as far as it is declared."""
        if root in self.made:
            flag = self.made[root].flag
            return flag if isinstance(flag, Array | Struct | Int | Pointer) else None
        if root.startswith("@"):
            static = self.module.statics.get(root[1:])
            return static.type if static else self.module.tables.get(root[1:], (b"", None))[1]
        pointee = self.function.pointees.get(root)
        return None if pointee is None else Array(1, pointee)  # also if it is one of many

    def steps(self, roots: set[str]) -> list[int]:
        """In which steps a pointer may move in what it leads to, the longest one first."""
        types = (self.type_of(root) for root in roots if root != NULL)
        found = set[int]().union(*(steps_of(of) for of in types if of is not None))
        found |= {STREAM_BYTES} if any(size > STREAM_BYTES for size in found) else set()
        return sorted(found | {1}, reverse=True)

    def parts(self, it: Instruction) -> list[tuple[int, int | Operand]]:
        """What a getelementptr adds: (bytes of a step, how many steps)."""
        address = element_address(Address(""), it)
        found: list[tuple[int, int | Operand]] = [(step, value) for value, step in address.terms]
        return [*found, *self.constant(address.offset, self.of(it.operands[0]))]

    def constant(self, offset: int, roots: set[str]) -> list[tuple[int, int]]:
        """Bytes as steps of the arrays that a pointer may be in."""
        found: list[tuple[int, int]] = []
        for step in self.steps(roots):
            count = int(offset / step)
            if count:
                found.append((step, count))
            offset -= count * step
        return found
