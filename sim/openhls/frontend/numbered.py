# SPDX-License-Identifier: Apache-2.0
"""Pointers as numbers: which variable, and how many steps into it.

Most pointers lead to places that are known as addresses (context.py): a variable, plus indices, or a choice between
such under a condition. What is left needs numbers: a pointer that an iteration of a loop hands to the next, or that
leaves a loop that chooses it; a pointer that memory keeps; and what is compared or subtracted. A pointer that was made
a number becomes an address again where it is: the choice between all variables that it may lead to.
"""

from __future__ import annotations

from dataclasses import replace

from openhls.errors import Unsupported
from openhls.frontend.graph import Graph, NaturalLoop
from openhls.frontend.llvm.module import Function, Global, Instruction, Local, Module, Null, Number, Operand
from openhls.frontend.moving import index_moving_pointers
from openhls.frontend.pointer_numbers import (
    BIT,
    STEPS,
    VARIABLE,
    Place,
    PointerNumbers,
    instructions_of,
    keeps_a_pointer,
)
from openhls.frontend.roots import NULL, Roots, holds_pointers
from openhls.frontend.scaled import count_elements, counts_bytes
from openhls.frontend.types import Array, Int, Pointer, Struct, Type

_KEPT_STEPS = 48  # low bits of a pointer in memory; above them is which variable it leads to


def number_pointers(module: Module, function: Function, memories: frozenset[str]) -> None:
    """Rewrites a function. `memories` are the parameters that lead to memory (INTERFACE m_axi).

    Raises Unsupported for what has no number: pointers that memory keeps, and that a stage gets; comparisons whose
    answer the places of variables give.
    """
    index_moving_pointers(function)
    made = _made(function)
    compares = any(_is_comparison(it) or it.opcode == "ptrtoint" for it in made.values())
    if any(counts_bytes(it) for it in made.values()):
        count_elements(function, Roots(module, function, made), frozenset() if compares else memories)
    moves = any(isinstance(it.type, Pointer) and it.opcode in ("phi", "load") for it in made.values())
    if compares or moves or any(map(keeps_a_pointer, instructions_of(function))):
        _Numbered(module, function).rewrite_where_needed()


def _made(function: Function) -> dict[str, Instruction]:
    return {it.name: it for block in function.blocks.values() for it in block.instructions if it.name}


def _is_comparison(it: Instruction) -> bool:
    return it.opcode == "icmp" and isinstance(it.types[0], Pointer)


class _Numbered:
    def __init__(self, module: Module, function: Function) -> None:
        self._function = function
        self._numbers = PointerNumbers(module, function)
        self._block_of = {it.name: name for name, block in function.blocks.items() for it in block.instructions}
        self._graph = Graph(function)
        self._numbered = self._find_numbered()

    # ---- what needs numbers ----

    def _find_numbered(self) -> list[Instruction]:
        """Pointers that no list of choices describes where they are used."""
        found = []
        for name in self._graph.order:
            inner = self._loops_around(name)
            for it in self._function.blocks[name].instructions:
                if not isinstance(it.type, Pointer) or it.opcode not in ("phi", "load"):
                    continue
                heads = it.opcode == "phi" and any(loop.header == name for loop in inner)
                if heads or it.opcode == "load" or any(self._chosen_within(each, inner) for each in it.operands):
                    found.append(it)
        return found

    def _loops_around(self, name: str) -> list[NaturalLoop]:
        found, loops = [], self._graph.loops
        while loop := next((loop for loop in loops.values() if name in loop.blocks), None):
            found.append(loop)
            loops = loop.inner
        return found

    def _chosen_within(self, operand: Operand, outside: list[NaturalLoop]) -> bool:
        """True if a loop that is not one of `outside` chooses where a pointer leads."""
        it = self._numbers.made.get(operand.name) if isinstance(operand, Local) else None
        if it is None:
            return False
        if it.opcode in ("getelementptr", "bitcast", "freeze"):
            return self._chosen_within(it.operands[0], outside)
        return it.opcode in ("phi", "select", "load") and any(
            loop not in outside for loop in self._loops_around(self._block_of[it.name])
        )

    # ---- rewriting ----

    def rewrite_where_needed(self) -> None:
        everything = instructions_of(self._function)
        needed = any(_is_comparison(it) or keeps_a_pointer(it) or it.opcode == "ptrtoint" for it in everything)
        if needed or self._numbered:
            self._rewrite()

    def _rewrite(self) -> None:
        for it in self._numbered:
            self._numbers.places[it.name] = self._new_place(it)
        for it in self._numbered:
            self._address_again(it, self._define(it))
        for it in instructions_of(self._function):
            if _is_comparison(it):
                self._compare(it)
            elif it.opcode == "sub":
                self._subtract(it)
            elif keeps_a_pointer(it):
                self._keep(it)
            elif it.opcode == "alloca" and isinstance(it.flag, Array | Struct | Pointer) and holds_pointers(it.flag):
                it.flag = _with_numbers(it.flag)
        self._numbers.rewriting.finish()
        self._drop_numbers_of_addresses()

    def _drop_numbers_of_addresses(self) -> None:
        """What was subtracted is not needed any more."""
        used = {each.name for it in instructions_of(self._function) for each in it.operands if isinstance(each, Local)}
        for block in self._function.blocks.values():
            block.instructions = [it for it in block.instructions if it.opcode != "ptrtoint" or it.name in used]

    def _new_place(self, it: Instruction) -> Place:
        """The names of the numbers of a pointer that gets its own."""
        which: Operand = Local(f"{it.name}.which")
        roots = self._numbers.roots.of(Local(it.name))
        if len(roots) == 1:
            which = self._numbers.number_of(next(iter(roots)))
        return Place(which, {step: Local(f"{it.name}.step{step}") for step in sorted(self._numbers.steps[it.name])})

    def _define(self, it: Instruction) -> Instruction:
        """Writes the numbers of a pointer; the last one of these."""
        place = self._numbers.places[it.name]
        if it.opcode == "load":
            return self._load(it, place)
        ways = [self._numbers.place(operand) for operand in it.operands]
        names = [(place.which, VARIABLE, [way.which for way in ways])]
        names += [
            (each, STEPS, [way.steps.get(step, Number(64, 0)) for way in ways]) for step, each in place.steps.items()
        ]
        for name, kind, operands in names:
            if not isinstance(name, Local):
                continue  # it leads to one variable
            phi = Instruction("phi", name.name, kind, operands, [kind] * len(operands), it.flag, it.location)
            self._numbers.rewriting.behind(it, phi)
        return it

    def _load(self, it: Instruction, place: Place) -> Instruction:
        """A pointer that memory keeps."""
        if self._leads_outside(it.operands[0]):
            raise Unsupported(
                self._numbers.where(it),
                "a pointer in memory that the function does not declare",
                "keep pointers in local variables and arrays, or use an array and an index",
            )
        self._check_kept(it, place)
        word = Local(f"{it.name}.kept")
        self._numbers.rewriting.instead(it, replace(it, name=word.name, type=STEPS))
        if isinstance(place.which, Local):
            high = self._numbers.emit(it, "lshr", f"{it.name}.high", STEPS, word, Number(64, _KEPT_STEPS))
            self._numbers.emit(it, "trunc", place.which.name, VARIABLE, high, of=STEPS)
        for step in place.steps.values():
            assert isinstance(step, Local)
            low = self._numbers.emit(it, "shl", f"{it.name}.low", STEPS, word, Number(64, 64 - _KEPT_STEPS))
            self._numbers.emit(it, "ashr", step.name, STEPS, low, Number(64, 64 - _KEPT_STEPS))
        return it

    def _check_kept(self, it: Instruction, place: Place) -> None:
        if len(place.steps) > 1:
            problem = "a pointer in memory that moves in steps of several sizes"
            raise Unsupported(self._numbers.where(it), problem, "keep an index instead")

    def _leads_outside(self, operand: Operand) -> bool:
        """True if a pointer may lead to something that the function does not declare."""
        return any(root not in self._numbers.made for root in self._numbers.roots.of(operand) - {NULL})

    def _keep(self, it: Instruction) -> None:
        """Stores a pointer."""
        if self._leads_outside(it.operands[1]):
            raise Unsupported(
                self._numbers.where(it),
                "a pointer is stored to memory that the function does not declare",
                "keep pointers in local variables and arrays, or use an array and an index",
            )
        place = self._numbers.place(it.operands[0])
        self._check_kept(it, place)
        name = f"{self._name_for(it)}.kept"
        which = self._numbers.before(it, "zext", f"{name}.which", STEPS, place.which, of=VARIABLE)
        word: Operand = self._numbers.before(it, "shl", f"{name}.high", STEPS, which, Number(64, _KEPT_STEPS))
        for step in place.steps.values():
            mask = Number(64, (1 << _KEPT_STEPS) - 1)
            low = self._numbers.before(it, "and", f"{name}.low", STEPS, step, mask)
            word = self._numbers.before(it, "or", name, STEPS, word, low)
        it.operands[0], it.types[0] = word, STEPS

    def _name_for(self, store: Instruction) -> str:
        """A name for what belongs to a store, which has none."""
        for name, block in self._function.blocks.items():
            for at, it in enumerate(block.instructions):
                if it is store:
                    return f"{name}.store{at}"
        raise LookupError("a store of another function")

    def _address_again(self, it: Instruction, anchor: Instruction) -> None:
        """The choice between all that a pointer may lead to, under its old name."""
        place = self._numbers.places[it.name]
        roots = sorted(self._numbers.roots.of(Local(it.name)) - {NULL})
        if not roots:
            raise Unsupported(self._numbers.where(it), "a pointer that leads nowhere", "let it point to a variable")
        addresses = []
        for number, root in enumerate(roots):
            address: Operand = Global(root[1:]) if root.startswith("@") else Local(root)
            for step, count in place.steps.items():
                name = f"{it.name}.to{number}.{step}"
                address = self._numbers.emit(
                    anchor, "getelementptr", name, Pointer(), address, count, flag=Array(step, Int(8))
                )
            addresses.append(address)
        chosen = addresses[0]
        for number, (root, address) in enumerate(list(zip(roots, addresses, strict=True))[1:]):
            name = f"{it.name}.is{number}"
            here = self._numbers.emit(
                anchor, "icmp", name, BIT, place.which, self._numbers.number_of(root), flag="eq", of=VARIABLE
            )
            chosen = self._numbers.emit(anchor, "select", f"{name}.way", Pointer(), here, address, chosen)
        self._numbers.emit(anchor, "bitcast", it.name, Pointer(), chosen)
        if it.opcode == "phi":
            self._numbers.rewriting.instead(it)

    # ---- comparisons ----

    def _compare(self, it: Instruction) -> None:
        a, b = (self._numbers.place(operand) for operand in it.operands)
        roots = set[str]().union(*map(self._numbers.roots.of, it.operands))
        order = str(it.flag)
        if order not in ("eq", "ne"):
            if len(roots - {NULL}) > 1:
                raise Unsupported(
                    self._numbers.where(it),
                    "an order of pointers that may lead to different variables",
                    "compare pointers into one array, or indices",
                )
            totals = [self._numbers.total(it, place, f"{it.name}.{side}") for side, place in (("a", a), ("b", b))]
            it.operands, it.types, it.flag = totals, [STEPS] * 2, order.replace("u", "s", 1)
            return
        if len(roots) > 1 and any(map(self._numbers.roots.is_parameter, roots)):
            raise Unsupported(
                self._numbers.where(it),
                "a pointer that is an argument is compared with another one, or with a null pointer",
                "pass a number that says what to do",
            )
        same = self._same_steps(it, a, b)
        if a.which != b.which:
            which = self._numbers.before(it, "icmp", f"{it.name}.which", BIT, a.which, b.which, flag="eq", of=VARIABLE)
            same = self._numbers.before(it, "and", f"{it.name}.both", BIT, which, same)
        it.opcode, it.operands, it.types = "xor", [same, Number(1, int(order == "ne"))], [BIT] * 2
        it.flag = frozenset()

    def _same_steps(self, it: Instruction, a: Place, b: Place) -> Operand:
        """That two pointers are as far from what they lead to. A null pointer is nowhere else."""
        if any(isinstance(each, Null) for each in it.operands):
            return Number(1, 1)
        steps = a.steps.keys() | b.steps.keys()
        if len(steps) == 1:
            step = next(iter(steps))
            counts = [place.steps.get(step, Number(64, 0)) for place in (a, b)]
        else:
            counts = [self._numbers.total(it, place, f"{it.name}.{side}") for side, place in (("a", a), ("b", b))]
        return self._numbers.before(it, "icmp", f"{it.name}.steps", BIT, *counts, flag="eq", of=STEPS)

    def _subtract(self, it: Instruction) -> None:
        """`p - q`, which clang writes as numbers of addresses."""
        casts = [self._numbers.made.get(each.name) if isinstance(each, Local) else None for each in it.operands]
        if any(cast is None or cast.opcode != "ptrtoint" for cast in casts):
            return
        pointers = [cast.operands[0] for cast in casts if cast is not None]
        roots = set[str]().union(*map(self._numbers.roots.of, pointers)) - {NULL}
        if len(roots) > 1:
            raise Unsupported(
                self._numbers.where(it),
                "a difference of pointers that may lead to different variables",
                "subtract pointers into one array, or indices",
            )
        places = [self._numbers.place(pointer) for pointer in pointers]
        it.operands = [
            self._numbers.total(it, place, f"{it.name}.{side}") for side, place in zip("ab", places, strict=True)
        ]


def _with_numbers(of: Type) -> Type:
    """A type in memory with numbers in place of its pointers."""
    if isinstance(of, Struct):
        return Struct(tuple(map(_with_numbers, of.fields)), of.packed)
    if isinstance(of, Array):
        return Array(of.length, _with_numbers(of.element))
    return STEPS if isinstance(of, Pointer) else of
