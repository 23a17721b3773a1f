# SPDX-License-Identifier: Apache-2.0
"""Any pointer of a function as numbers: which variable it leads to, and how many steps into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from openhls.errors import Unsupported
from openhls.frontend.llvm.module import Function, Global, Instruction, Local, Module, Null, Number, Operand
from openhls.frontend.rewriting import Rewriting
from openhls.frontend.roots import NULL, Roots
from openhls.frontend.types import Int, Pointer, Type
from openhls.ir import UNKNOWN, Location

BIT, VARIABLE, STEPS = Int(1), Int(16), Int(64)  # of a condition, the number of a variable, and a count of steps
_NO_WRAP = frozenset({"nsw"})


def instructions_of(function: Function) -> list[Instruction]:
    return [it for block in function.blocks.values() for it in block.instructions]


def keeps_a_pointer(it: Instruction) -> bool:
    """True for the store of a pointer."""
    return it.opcode == "store" and isinstance(it.types[0], Pointer)


@dataclass(frozen=True)
class Place:
    """A pointer as numbers: which root, and steps by the bytes of one step."""

    which: Operand
    steps: Mapping[int, Operand]


class PointerNumbers:
    """Writes the numbers of pointers into a function, each behind its pointer; `rewriting` has what is written.

    `places` has those that are known: a pointer that gets numbers of its own is put there first.
    """

    def __init__(self, module: Module, function: Function) -> None:
        self._function = function
        self.made = {it.name: it for it in instructions_of(function) if it.name}
        self.roots = Roots(module, function, self.made)
        self.rewriting = Rewriting(function)
        self.places: dict[str, Place] = {}
        self._ids = {NULL: 0}
        self.steps = self._find_steps()

    def _find_steps(self) -> dict[str, set[int]]:
        """In which steps each pointer has moved from its variable, by the name of the pointer."""
        found: dict[str, set[int]] = {}
        changed = True
        while changed:
            changed = False
            for it in self.made.values():
                if isinstance(it.type, Pointer) and it.opcode != "alloca":
                    steps = self._steps_made(it, found)
                    changed |= steps != found.get(it.name, set())
                    found[it.name] = steps
        return found

    def _steps_made(self, it: Instruction, found: dict[str, set[int]]) -> set[int]:
        def of(operand: Operand) -> set[int]:
            if isinstance(operand, Global):
                return {step for step, _ in self.roots.constant(operand.offset, self.roots.of(operand))}
            return found.get(operand.name, set()) if isinstance(operand, Local) else set()

        if it.opcode == "getelementptr":
            return of(it.operands[0]) | {step for step, _ in self.roots.parts(it)}
        if it.opcode == "load":
            return set().union(*(of(each.operands[0]) for each in self._stores_of_pointers(it.operands[0])))
        return set().union(*map(of, it.operands[1 if it.opcode == "select" else 0 :]))

    def _stores_of_pointers(self, where: Operand) -> list[Instruction]:
        """The stores that may keep a pointer where one is loaded; what copies move may be any."""
        roots = self.roots.of(where)
        stores = [it for it in instructions_of(self._function) if keeps_a_pointer(it)]
        copies = any(
            it.opcode == "call" and str(it.flag).startswith("llvm.mem") for it in instructions_of(self._function)
        )
        return [it for it in stores if copies or self.roots.of(it.operands[1]) & roots]

    def number_of(self, root: str) -> Number:
        return Number(16, self._ids.setdefault(root, len(self._ids)))

    # ---- numbers of any pointer ----

    def place(self, operand: Operand) -> Place:
        """The numbers of a pointer, written behind it."""
        if isinstance(operand, Null):
            return Place(Number(16, 0), {})
        if isinstance(operand, Global):
            steps = self.roots.constant(operand.offset, self.roots.of(operand))
            return Place(self.number_of(f"@{operand.name}"), {step: _constant(count) for step, count in steps})
        assert isinstance(operand, Local)
        it = self.made.get(operand.name)
        if it is None or it.opcode == "alloca":
            return Place(self.number_of(operand.name), {})
        if operand.name not in self.places:
            self.places[operand.name] = self._written(it)
        return self.places[operand.name]

    def _written(self, it: Instruction) -> Place:
        if it.opcode in ("bitcast", "freeze"):
            return self.place(it.operands[0])
        if it.opcode == "getelementptr":
            base = self.place(it.operands[0])
            steps = dict(base.steps)
            for number, (step, count) in enumerate(self.roots.parts(it)):
                added = _constant(count) if isinstance(count, int) else self._wide(it, number, count)
                if step in steps:
                    added = self.emit(it, "add", f"{it.name}.step{step}.{number}", STEPS, steps[step], added)
                steps[step] = added
            return Place(base.which, steps)
        if it.opcode not in ("phi", "select"):
            raise Unsupported(self.where(it), "a pointer that is computed at run time", "use an array and an index")
        first = 1 if it.opcode == "select" else 0
        ways = [self.place(operand) for operand in it.operands[first:]]
        which: Operand = ways[0].which
        if any(way.which != which for way in ways):
            which = self._choice(it, f"{it.name}.which", VARIABLE, [way.which for way in ways])
        steps = {}
        for step in sorted(set[int]().union(*(way.steps for way in ways))):
            counts = [way.steps.get(step, Number(64, 0)) for way in ways]
            steps[step] = self._choice(it, f"{it.name}.step{step}", STEPS, counts)
        return Place(which, steps)

    def _choice(self, it: Instruction, name: str, kind: Int, options: list[Operand]) -> Local:
        """The same choice as `it`, between numbers."""
        kept = it.operands[:1] if it.opcode == "select" else []
        types: list[Type] = [BIT] if kept else []
        made = replace(it, name=name, type=kind, operands=[*kept, *options], types=[*types, *[kind] * len(options)])
        self.rewriting.behind(it, made)
        return Local(name)

    def _wide(self, it: Instruction, number: int, count: Operand) -> Operand:
        """An index in 64 bits; those that are narrower have signs."""
        kind = next(of for each, of in zip(it.operands, it.types, strict=True) if each is count)
        if kind == STEPS:
            return count
        return self.emit(it, "sext", f"{it.name}.index{number}", STEPS, count, of=kind)

    def total(self, it: Instruction, place: Place, name: str) -> Operand:
        """Bytes from the start of a variable to a place in it."""
        total: Operand = Number(64, 0)
        for step, count in place.steps.items():
            bytes_of_it = self.before(it, "mul", f"{name}.{step}", STEPS, count, Number(64, step))
            total = self.before(it, "add", f"{name}.{step}.sum", STEPS, total, bytes_of_it)
        return total

    # ---- writing ----

    def emit(
        self,
        anchor: Instruction,
        opcode: str,
        name: str,
        kind: Type,
        *operands: Operand,
        flag: object = _NO_WRAP,
        of: Type | None = None,
    ) -> Local:
        """An instruction behind another one."""
        self.rewriting.behind(anchor, _instruction(anchor, opcode, name, kind, operands, flag, of))
        return Local(name)

    def before(
        self,
        anchor: Instruction,
        opcode: str,
        name: str,
        kind: Type,
        *operands: Operand,
        flag: object = _NO_WRAP,
        of: Type | None = None,
    ) -> Local:
        """An instruction in front of another one."""
        self.rewriting.before(anchor, _instruction(anchor, opcode, name, kind, operands, flag, of))
        return Local(name)

    def where(self, it: Instruction) -> Location:
        return self._function.location if it.location == UNKNOWN or not it.location.line else it.location


def _instruction(
    near: Instruction, opcode: str, name: str, kind: Type, operands: tuple[Operand, ...], flag: object, of: Type | None
) -> Instruction:
    if opcode == "getelementptr":
        types: list[Type] = [Pointer(), STEPS]
    elif opcode == "select":
        types = [BIT, kind, kind]
    else:
        types = [of or kind] * len(operands)
    if opcode not in ("add", "mul", "getelementptr", "icmp"):
        flag = frozenset()
    return Instruction(opcode, name, kind, list(operands), types, flag, near.location)


def _constant(count: int) -> Number:
    return Number(64, count % (1 << 64))
