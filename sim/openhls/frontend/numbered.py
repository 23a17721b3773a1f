# SPDX-License-Identifier: Apache-2.0
"""Pointers as numbers: which variable, and how many steps into it.

Most pointers lead to places that are known as addresses (context.py): a variable, plus indices, or a choice between
such under a condition. What is left needs numbers: a pointer that an iteration of a loop hands to the next, or that
leaves a loop that chooses it; a pointer that memory keeps; and what is compared or subtracted. A pointer that was made
a number becomes an address again where it is: the choice between all variables that it may lead to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from openhls.errors import Unsupported
from openhls.frontend.graph import Graph, NaturalLoop
from openhls.frontend.llvm.module import Function, Global, Instruction, Local, Module, Null, Number, Operand
from openhls.frontend.moving import index_moving_pointers
from openhls.frontend.rewriting import Rewriting
from openhls.frontend.roots import NULL, Roots, holds_pointers
from openhls.frontend.scaled import count_elements, counts_bytes
from openhls.frontend.types import Array, Int, Pointer, Struct, Type
from openhls.ir import UNKNOWN, Location

_STEPS = Int(64)
_BIT = Int(1)
_KEPT_STEPS = 48  # low bits of a pointer in memory; above them is which variable it leads to
_NO_WRAP = frozenset({"nsw"})


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
    if compares or moves or any(map(_keeps_a_pointer, _all(function))):
        _Numbers(module, function).rewrite_where_needed()


def _made(function: Function) -> dict[str, Instruction]:
    return {it.name: it for block in function.blocks.values() for it in block.instructions if it.name}


def _all(function: Function) -> list[Instruction]:
    return [it for block in function.blocks.values() for it in block.instructions]


def _keeps_a_pointer(it: Instruction) -> bool:
    return it.opcode == "store" and isinstance(it.types[0], Pointer)


def _is_comparison(it: Instruction) -> bool:
    return it.opcode == "icmp" and isinstance(it.types[0], Pointer)


@dataclass(frozen=True)
class _Place:
    """A pointer as numbers: which root, and steps by the bytes of one step."""

    which: Operand
    steps: Mapping[int, Operand]


class _Numbers:
    def __init__(self, module: Module, function: Function) -> None:
        self._function = function
        self._made = _made(function)
        self._block_of = {it.name: name for name, block in function.blocks.items() for it in block.instructions}
        self._roots = Roots(module, function, self._made)
        self._rewriting = Rewriting(function)
        self._ids = {NULL: 0}
        self._places: dict[str, _Place] = {}
        self._graph = Graph(function)
        self._numbered = self._find_numbered()
        self._steps = self._find_steps()

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
        it = self._made.get(operand.name) if isinstance(operand, Local) else None
        if it is None:
            return False
        if it.opcode in ("getelementptr", "bitcast", "freeze"):
            return self._chosen_within(it.operands[0], outside)
        return it.opcode in ("phi", "select", "load") and any(
            loop not in outside for loop in self._loops_around(self._block_of[it.name])
        )

    def _find_steps(self) -> dict[str, set[int]]:
        """In which steps each pointer has moved from its variable, by the name of the pointer."""
        found: dict[str, set[int]] = {}
        changed = True
        while changed:
            changed = False
            for it in self._made.values():
                if isinstance(it.type, Pointer) and it.opcode != "alloca":
                    steps = self._steps_made(it, found)
                    changed |= steps != found.get(it.name, set())
                    found[it.name] = steps
        return found

    def _steps_made(self, it: Instruction, found: dict[str, set[int]]) -> set[int]:
        def of(operand: Operand) -> set[int]:
            if isinstance(operand, Global):
                return {step for step, _ in self._roots.constant(operand.offset, self._roots.of(operand))}
            return found.get(operand.name, set()) if isinstance(operand, Local) else set()

        if it.opcode == "getelementptr":
            return of(it.operands[0]) | {step for step, _ in self._roots.parts(it)}
        if it.opcode == "load":
            return set().union(*(of(each.operands[0]) for each in self._stores_of_pointers(it.operands[0])))
        return set().union(*map(of, it.operands[1 if it.opcode == "select" else 0 :]))

    def _stores_of_pointers(self, where: Operand) -> list[Instruction]:
        """The stores that may keep a pointer where one is loaded; what copies move may be any."""
        roots = self._roots.of(where)
        stores = [it for it in _all(self._function) if _keeps_a_pointer(it)]
        copies = any(it.opcode == "call" and str(it.flag).startswith("llvm.mem") for it in _all(self._function))
        return [it for it in stores if copies or self._roots.of(it.operands[1]) & roots]

    # ---- rewriting ----

    def rewrite_where_needed(self) -> None:
        everything = _all(self._function)
        if self._numbered or any(
            _is_comparison(it) or _keeps_a_pointer(it) or it.opcode == "ptrtoint" for it in everything
        ):
            self._rewrite()

    def _rewrite(self) -> None:
        for it in self._numbered:
            self._places[it.name] = self._new_place(it)
        for it in self._numbered:
            self._address_again(it, self._define(it))
        for it in _all(self._function):
            if _is_comparison(it):
                self._compare(it)
            elif it.opcode == "sub":
                self._subtract(it)
            elif _keeps_a_pointer(it):
                self._keep(it)
            elif it.opcode == "alloca" and isinstance(it.flag, Array | Struct | Pointer) and holds_pointers(it.flag):
                it.flag = _with_numbers(it.flag)
        self._rewriting.finish()
        self._drop_numbers_of_addresses()

    def _drop_numbers_of_addresses(self) -> None:
        """What was subtracted is not needed any more."""
        used = {each.name for it in _all(self._function) for each in it.operands if isinstance(each, Local)}
        for block in self._function.blocks.values():
            block.instructions = [it for it in block.instructions if it.opcode != "ptrtoint" or it.name in used]

    def _new_place(self, it: Instruction) -> _Place:
        """The names of the numbers of a pointer that gets its own."""
        which: Operand = Local(f"{it.name}.which")
        roots = self._roots.of(Local(it.name))
        if len(roots) == 1:
            which = self._number_of(next(iter(roots)))
        return _Place(which, {step: Local(f"{it.name}.step{step}") for step in sorted(self._steps[it.name])})

    def _number_of(self, root: str) -> Number:
        return Number(16, self._ids.setdefault(root, len(self._ids)))

    def _define(self, it: Instruction) -> Instruction:
        """Writes the numbers of a pointer; the last one of these."""
        place = self._places[it.name]
        if it.opcode == "load":
            return self._load(it, place)
        ways = [self._place(operand, it) for operand in it.operands]
        names = [(place.which, Int(16), [way.which for way in ways])] if isinstance(place.which, Local) else []
        names += [
            (each, _STEPS, [way.steps.get(step, Number(64, 0)) for way in ways]) for step, each in place.steps.items()
        ]
        for name, kind, operands in names:
            assert isinstance(name, Local)
            phi = Instruction("phi", name.name, kind, operands, [kind] * len(operands), it.flag, it.location)
            self._rewriting.behind(it, phi)
        return it

    def _load(self, it: Instruction, place: _Place) -> Instruction:
        """A pointer that memory keeps."""
        if self._leads_outside(it.operands[0]):
            raise Unsupported(
                self._where(it),
                "a pointer in memory that the function does not declare",
                "keep pointers in local variables and arrays, or use an array and an index",
            )
        if len(place.steps) > 1:
            raise Unsupported(
                self._where(it), "a pointer in memory that moves in steps of several sizes", "keep an index instead"
            )
        word = Local(f"{it.name}.kept")
        self._rewriting.instead(it, replace(it, name=word.name, type=_STEPS))
        if isinstance(place.which, Local):
            high = self._emit(it, "lshr", f"{it.name}.high", _STEPS, word, Number(64, _KEPT_STEPS))
            self._emit(it, "trunc", place.which.name, Int(16), high, of=_STEPS)
        for step in place.steps.values():
            assert isinstance(step, Local)
            low = self._emit(it, "shl", f"{it.name}.low", _STEPS, word, Number(64, 64 - _KEPT_STEPS))
            self._emit(it, "ashr", step.name, _STEPS, low, Number(64, 64 - _KEPT_STEPS))
        return it

    def _leads_outside(self, operand: Operand) -> bool:
        """True if a pointer may lead to something that the function does not declare."""
        return any(root not in self._made for root in self._roots.of(operand) - {NULL})

    def _keep(self, it: Instruction) -> None:
        """Stores a pointer."""
        if self._leads_outside(it.operands[1]):
            raise Unsupported(
                self._where(it),
                "a pointer is stored to memory that the function does not declare",
                "keep pointers in local variables and arrays, or use an array and an index",
            )
        place = self._place(it.operands[0], it)
        if len(place.steps) > 1:
            raise Unsupported(
                self._where(it), "a pointer in memory that moves in steps of several sizes", "keep an index instead"
            )
        name = f"{self._anchor(it)}.kept"
        which = self._before(it, "zext", f"{name}.which", _STEPS, place.which, of=Int(16))
        word: Operand = self._before(it, "shl", f"{name}.high", _STEPS, which, Number(64, _KEPT_STEPS))
        for step in place.steps.values():
            mask = Number(64, (1 << _KEPT_STEPS) - 1)
            low = self._before(it, "and", f"{name}.low", _STEPS, step, mask)
            word = self._before(it, "or", name, _STEPS, word, low)
        it.operands[0], it.types[0] = word, _STEPS

    def _address_again(self, it: Instruction, anchor: Instruction) -> None:
        """The choice between all that a pointer may lead to, under its old name."""
        place = self._places[it.name]
        roots = sorted(self._roots.of(Local(it.name)) - {NULL})
        if not roots:
            raise Unsupported(self._where(it), "a pointer that leads nowhere", "let it point to a variable")
        addresses = []
        for number, root in enumerate(roots):
            address: Operand = Global(root[1:]) if root.startswith("@") else Local(root)
            for step, count in place.steps.items():
                name = f"{it.name}.to{number}.{step}"
                address = self._emit(anchor, "getelementptr", name, Pointer(), address, count, flag=Array(step, Int(8)))
            addresses.append(address)
        chosen = addresses[0]
        for number, (root, address) in enumerate(list(zip(roots, addresses, strict=True))[1:]):
            name = f"{it.name}.is{number}"
            here = self._emit(anchor, "icmp", name, _BIT, place.which, self._number_of(root), flag="eq", of=Int(16))
            chosen = self._emit(anchor, "select", f"{name}.way", Pointer(), here, address, chosen)
        self._emit(anchor, "bitcast", it.name, Pointer(), chosen)
        if it.opcode == "phi":
            self._rewriting.instead(it)

    # ---- numbers of any pointer ----

    def _place(self, operand: Operand, user: Instruction) -> _Place:
        """The numbers of a pointer, written behind it."""
        if isinstance(operand, Null):
            return _Place(Number(16, 0), {})
        if isinstance(operand, Global):
            steps = self._roots.constant(operand.offset, self._roots.of(operand))
            return _Place(self._number_of(f"@{operand.name}"), {step: _constant(count) for step, count in steps})
        assert isinstance(operand, Local)
        it = self._made.get(operand.name)
        if it is None or it.opcode == "alloca":
            return _Place(self._number_of(operand.name), {})
        if operand.name not in self._places:
            self._places[operand.name] = self._written(it)
        return self._places[operand.name]

    def _written(self, it: Instruction) -> _Place:
        if it.opcode in ("bitcast", "freeze"):
            return self._place(it.operands[0], it)
        if it.opcode == "getelementptr":
            base = self._place(it.operands[0], it)
            steps = dict(base.steps)
            for number, (step, count) in enumerate(self._roots.parts(it)):
                added = _constant(count) if isinstance(count, int) else self._wide(it, number, count)
                if step in steps:
                    added = self._emit(it, "add", f"{it.name}.step{step}.{number}", _STEPS, steps[step], added)
                steps[step] = added
            return _Place(base.which, steps)
        if it.opcode not in ("phi", "select"):
            raise Unsupported(self._where(it), "a pointer that is computed at run time", "use an array and an index")
        first = 1 if it.opcode == "select" else 0
        ways = [self._place(operand, it) for operand in it.operands[first:]]
        which: Operand = ways[0].which
        if any(way.which != which for way in ways):
            which = self._choice(it, f"{it.name}.which", Int(16), [way.which for way in ways])
        steps = {}
        for step in sorted(set[int]().union(*(way.steps for way in ways))):
            counts = [way.steps.get(step, Number(64, 0)) for way in ways]
            steps[step] = self._choice(it, f"{it.name}.step{step}", _STEPS, counts)
        return _Place(which, steps)

    def _choice(self, it: Instruction, name: str, kind: Int, options: list[Operand]) -> Local:
        """The same choice as `it`, between numbers."""
        kept = it.operands[:1] if it.opcode == "select" else []
        types: list[Type] = [_BIT] if kept else []
        made = replace(it, name=name, type=kind, operands=[*kept, *options], types=[*types, *[kind] * len(options)])
        self._rewriting.behind(it, made)
        return Local(name)

    def _wide(self, it: Instruction, number: int, count: Operand) -> Operand:
        """An index in 64 bits; those that are narrower have signs."""
        kind = next(of for each, of in zip(it.operands, it.types, strict=True) if each is count)
        if kind == _STEPS:
            return count
        return self._emit(it, "sext", f"{it.name}.index{number}", _STEPS, count, of=kind)

    # ---- comparisons ----

    def _compare(self, it: Instruction) -> None:
        a, b = (self._place(operand, it) for operand in it.operands)
        roots = self._lead_to(it)
        order = str(it.flag)
        if order not in ("eq", "ne"):
            if len(roots - {NULL}) > 1:
                raise Unsupported(
                    self._where(it),
                    "an order of pointers that may lead to different variables",
                    "compare pointers into one array, or indices",
                )
            totals = [self._total(it, place, f"{it.name}.{side}") for side, place in (("a", a), ("b", b))]
            it.operands, it.types, it.flag = totals, [_STEPS] * 2, order.replace("u", "s", 1)
            return
        if len(roots) > 1 and any(map(self._roots.is_parameter, roots)):
            raise Unsupported(
                self._where(it),
                "a pointer that is an argument is compared with another one, or with a null pointer",
                "pass a number that says what to do",
            )
        same = self._same_steps(it, a, b)
        if a.which != b.which:
            which = self._before(it, "icmp", f"{it.name}.which", _BIT, a.which, b.which, flag="eq", of=Int(16))
            same = self._before(it, "and", f"{it.name}.both", _BIT, which, same)
        it.opcode, it.operands, it.types = "xor", [same, Number(1, int(order == "ne"))], [_BIT] * 2
        it.flag = frozenset()

    def _same_steps(self, it: Instruction, a: _Place, b: _Place) -> Operand:
        """That two pointers are as far from what they lead to. A null pointer is nowhere else."""
        if any(isinstance(each, Null) for each in it.operands):
            return Number(1, 1)
        steps = a.steps.keys() | b.steps.keys()
        if len(steps) == 1:
            step = next(iter(steps))
            counts = [place.steps.get(step, Number(64, 0)) for place in (a, b)]
        else:
            counts = [self._total(it, place, f"{it.name}.{side}") for side, place in (("a", a), ("b", b))]
        return self._before(it, "icmp", f"{it.name}.steps", _BIT, *counts, flag="eq", of=_STEPS)

    def _subtract(self, it: Instruction) -> None:
        """`p - q`, which clang writes as numbers of addresses."""
        casts = [self._made.get(each.name) if isinstance(each, Local) else None for each in it.operands]
        if any(cast is None or cast.opcode != "ptrtoint" for cast in casts):
            return
        pointers = [cast.operands[0] for cast in casts if cast is not None]
        roots = set[str]().union(*map(self._roots.of, pointers)) - {NULL}
        if len(roots) > 1:
            raise Unsupported(
                self._where(it),
                "a difference of pointers that may lead to different variables",
                "subtract pointers into one array, or indices",
            )
        places = [self._place(pointer, it) for pointer in pointers]
        it.operands = [self._total(it, place, f"{it.name}.{side}") for side, place in zip("ab", places, strict=True)]

    def _lead_to(self, it: Instruction) -> set[str]:
        return set[str]().union(*map(self._roots.of, it.operands))

    def _total(self, it: Instruction, place: _Place, name: str) -> Operand:
        """Bytes from the start of a variable to a place in it."""
        total: Operand = Number(64, 0)
        for step, count in place.steps.items():
            bytes_of_it = self._before(it, "mul", f"{name}.{step}", _STEPS, count, Number(64, step))
            total = self._before(it, "add", f"{name}.{step}.sum", _STEPS, total, bytes_of_it)
        return total

    # ---- writing ----

    def _emit(
        self, anchor: Instruction, opcode: str, name: str, kind: Type, *operands: Operand, flag: object = _NO_WRAP,
        of: Type | None = None,
    ) -> Local:  # fmt: skip
        """An instruction behind another one."""
        self._rewriting.behind(anchor, _instruction(anchor, opcode, name, kind, operands, flag, of))
        return Local(name)

    def _before(
        self, anchor: Instruction, opcode: str, name: str, kind: Type, *operands: Operand, flag: object = _NO_WRAP,
        of: Type | None = None,
    ) -> Local:  # fmt: skip
        """An instruction in front of another one."""
        self._rewriting.before(anchor, _instruction(anchor, opcode, name, kind, operands, flag, of))
        return Local(name)

    def _anchor(self, it: Instruction) -> str:
        """A name for what belongs to a store, which has none."""
        block = next(
            name for name, block in self._function.blocks.items() if any(each is it for each in block.instructions)
        )
        at = next(n for n, each in enumerate(self._function.blocks[block].instructions) if each is it)
        return f"{block}.store{at}"

    def _where(self, it: Instruction) -> Location:
        return self._function.location if it.location == UNKNOWN or not it.location.line else it.location


def _instruction(
    near: Instruction, opcode: str, name: str, kind: Type, operands: tuple[Operand, ...], flag: object, of: Type | None
) -> Instruction:
    if opcode == "getelementptr":
        types: list[Type] = [Pointer(), _STEPS]
    elif opcode == "select":
        types = [_BIT, kind, kind]
    else:
        types = [of or kind] * len(operands)
    if opcode not in ("add", "mul", "getelementptr", "icmp"):
        flag = frozenset()
    return Instruction(opcode, name, kind, list(operands), types, flag, near.location)


def _constant(count: int) -> Number:
    return Number(64, count % (1 << 64))


def _with_numbers(of: Type) -> Type:
    """A type in memory with numbers in place of its pointers."""
    if isinstance(of, Struct):
        return Struct(tuple(map(_with_numbers, of.fields)), of.packed)
    if isinstance(of, Array):
        return Array(of.length, _with_numbers(of.element))
    return _STEPS if isinstance(of, Pointer) else of
