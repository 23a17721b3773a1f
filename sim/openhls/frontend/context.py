# SPDX-License-Identifier: Apache-2.0
"""A function in the place it is called from: where its pointers lead, and which of them are streams.

Arrays are shaped by all accesses to them, in their owner and in the stages it passes them to, so this is worked out for
the whole tree of calls before anything is lowered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from openhls.errors import Unsupported
from openhls.frontend.addresses import BURST_AT, BURST_STREAMS, STREAM_BYTES, Address, element_address, walk
from openhls.frontend.graph import Graph
from openhls.frontend.llvm.module import Function, Global, Instruction, Local, Module, Null, Number, Operand, Variable
from openhls.frontend.numbered import number_pointers
from openhls.frontend.objects import Shape
from openhls.frontend.types import Array, Int, Pointer, Struct, Type
from openhls.frontend.whole_stores import Access, Together, stored_together, used_bytes
from openhls.ir import UNKNOWN, Location

STREAM_TYPES = ("stream<", "struct stream_of_blocks<")
MOST_BYTES = 128  # of an element in memory
IGNORED = ("llvm.lifetime.", "llvm.experimental.noalias", "llvm.dbg.", "llvm.assume", "llvm.invariant.")
ASSEMBLER = "asm:"
COPIES = ("llvm.memcpy", "llvm.memset", "llvm.memmove")


@dataclass
class Object:
    """A variable that is not a stream. `name` is from where it is declared; `variables` are all it goes by.
    `is_local`: a function declares it, so that nothing outside knows where its elements lie."""

    root: Type
    offset: int
    shape: Shape
    variables: list[Variable]
    external: bool
    name: str
    is_local: bool = False


@dataclass
class Granule:
    """The bytes that memory behind a pointer is accessed in: the largest power of two that all accesses to it, in all
    stages, consist of."""

    size: int = MOST_BYTES
    element: int = 0  # bytes of a struct that is accessed as a whole, as long as nothing speaks against it
    hides_padding: bool = False  # what is stored to the padding of a struct does not matter

    @property
    def whole(self) -> int:
        """The bytes of the elements that are accessed as a whole; 0 if accesses are made as they are."""
        return self.element if self.element > self.size else 0

    def learn(self, address: Address, size: int, *, may_be_whole: bool = False) -> None:
        """`may_be_whole`: the access may take in all of its element."""
        if self.element and not (
            may_be_whole
            and address.offset % self.element + size <= self.element
            and all(stride % self.element == 0 for _, stride in address.terms)
        ):
            self.element = 0
        # A stride of 1 is p[byte / size] where clang knows that nothing is cut off: whole elements, too.
        for number in (size, address.offset, *(stride for _, stride in address.terms if stride != 1)):
            self.size = math.gcd(self.size, number)


@dataclass(frozen=True)
class Way:
    """An address that a pointer has if certain instructions choose it: (select or phi, which of its operands)."""

    address: Address
    choices: tuple[tuple[str, int], ...] = ()


@dataclass
class Context:
    """A function, its pointers and objects by name, its streams, and the contexts of the stages it calls.

    `memories` are the parameters that point into memory (INTERFACE m_axi).
    """

    function: Function
    objects: dict[str, Object]
    ways: dict[str, list[Way]] = field(default_factory=dict)
    streams: set[str] = field(default_factory=set)
    calls: dict[int, Context] = field(default_factory=dict)  # by the id of the instruction
    callers: tuple[str, ...] = ()
    memories: frozenset[str] = frozenset()
    granules: dict[str, Granule] = field(default_factory=dict)  # of the memories
    counts: dict[str, int] = field(default_factory=dict)  # of the streams in an array, by the name of the array
    offsets: dict[str, Instruction] = field(default_factory=dict)  # selects between constants that index addresses
    together: dict[int, Together] = field(default_factory=dict)  # by the id of a store to a part of a struct in memory

    def ways_of(self, operand: Operand, location: Location) -> list[Way]:
        """Where a pointer can lead."""
        if isinstance(operand, Local) and self.ways.get(operand.name):
            return self.ways[operand.name]
        if isinstance(operand, Global):
            return [Way(Address("@" + operand.name, operand.offset))]
        place = self.function.location if location == UNKNOWN else location
        raise Unsupported(place, "a pointer that is computed at run time", "use an array and an index")

    def accessed_ways(self, operand: Operand, size: int, location: Location) -> list[Way]:
        """Where a pointer can lead where `size` bytes are accessed: not behind the last element."""
        ways = self.ways_of(operand, location)
        inside = [way for way in ways if self._is_inside(way.address, size)]
        return inside if inside else ways

    def _is_inside(self, address: Address, size: int) -> bool:
        held = self.objects.get(address.base)
        return held is None or bool(address.terms) or 0 <= held.offset + address.offset <= held.root.size - size

    def address(self, operand: Operand, location: Location) -> Address:
        """Where a pointer leads, if that is fixed."""
        ways = self.ways_of(operand, location)
        if len(ways) > 1:
            raise Unsupported(location, "a pointer that is chosen at run time", "choose between values instead")
        return ways[0].address

    def key(self) -> tuple[object, ...]:
        """Equal for contexts that give the same process."""
        bound = [
            (name, held.root, held.offset, held.is_local, *held.shape.frozen())
            for name, held in sorted(self.objects.items())
            if held.external
        ]
        granules = tuple(sorted((name, each.size, each.whole) for name, each in self.granules.items()))
        return (self.function.name, tuple(bound), self.memories, granules, tuple(sorted(self.counts.items())))


def is_call_of_stage(module: Module, it: Instruction) -> bool:
    """True if an instruction calls a function that has a body."""
    return it.opcode == "call" and str(it.flag) in module.functions


def make_context(
    module: Module,
    function: Function,
    bound: dict[str, Object],
    memories: frozenset[str],
    callers: tuple[str, ...] = (),
    bounds: Mapping[str, int] | None = None,
    granules: Mapping[str, Granule] | None = None,
) -> Context:
    """`bounds`: lengths of the array parameters of the top, which has no callers, or of arrays of streams of a stage.
    `bound` holds what the pointer parameters and global variables ("@" and the name) lead to, if the caller knows.
    """
    if not function.indexed:
        number_pointers(module, function, memories)
        function.indexed = True
    context = Context(function, dict(bound), callers=callers, memories=memories)
    usual = {name: usual_element(function.pointees.get(name)) for name in memories}
    context.granules = {name: (granules or {}).get(name) or Granule(element=usual[name]) for name in memories}
    context.counts = {name: count for name, count in (bounds or {}).items() if name not in memories}
    for name, of in function.parameters:
        if isinstance(of, Pointer):
            context.ways[name] = [Way(Address(name))]
    selects: dict[str, Instruction] = {}
    for name in Graph(function).order:
        for it in function.blocks[name].instructions:
            if isinstance(it.type, Pointer):
                _find_ways(context, it, selects)
            elif it.opcode == "select" and all(isinstance(each, Number) for each in it.operands[1:]):
                selects[it.name] = it
    if not callers:
        _add_statics(module, context)
    _strip_volatile(module, context)
    if not callers:
        _add_arrays(context, bounds or {})
        _invent_roots(context)
    context.together = _find_whole_stores(module, context)
    for it in _instructions(function):
        _learn(module, context, it)
    return context


def usual_element(of: Type | None) -> int:
    """The bytes of a struct that memory can move as a whole; 0 for anything else."""
    size = of.size if isinstance(of, Struct) else 0
    return size if size & (size - 1) == 0 and size <= MOST_BYTES else 0


def _accesses(module: Module, context: Context, it: Instruction) -> Iterator[Access]:
    """What an instruction accesses through pointers; a stage counts as a load."""
    pointers = [operand for operand, of in zip(it.operands, it.types, strict=False) if isinstance(of, Pointer)]
    accessed: list[tuple[Operand, int, bool]] = []
    if it.opcode in ("load", "store"):
        accessed = [(it.operands[-1], (it.type if it.opcode == "load" else it.types[0]).size, it.opcode == "store")]
    elif it.opcode == "call" and str(it.flag).startswith(COPIES):
        size = getattr(it.operands[2], "bits", 0)
        accessed = [(operand, size, to) for operand, to in zip(pointers, (True, False), strict=False)]
    elif is_call_of_stage(module, it):
        accessed = [(operand, 1, False) for operand in pointers]
    for operand, size, stores in accessed:
        ways = context.ways_of(operand, it.location)
        yield from (Access(it, way.address, size, stores, len(ways) > 1) for way in ways)


def _find_whole_stores(module: Module, context: Context) -> dict[int, Together]:
    """The stores to structs behind pointers that are only stored as a whole."""
    elements = {}
    for name, granule in context.granules.items():
        of = context.function.pointees.get(name)
        if of is not None and granule.element and granule.element == of.size:
            needed = used_bytes(of) if granule.hides_padding else range(granule.element)
            elements[name] = granule.element, set(needed)
    if not elements:
        return {}
    blocks = context.function.blocks.values()
    made = ([each for it in block.instructions for each in _accesses(module, context, it)] for block in blocks)
    return stored_together(made, elements)


def _element_ways(context: Context, it: Instruction, selects: dict[str, Instruction]) -> list[Way]:
    """Clang writes a choice between two elements as a choice between two offsets."""
    options: list[tuple[Instruction, tuple[tuple[str, int], ...]]] = [(it, ())]
    for position, operand in enumerate(it.operands):
        chosen = selects.get(operand.name) if isinstance(operand, Local) else None
        if chosen is not None and position > 0:
            context.offsets[chosen.name] = chosen
            options = [
                (
                    replace(each, operands=[*each.operands[:position], value, *each.operands[position + 1 :]]),
                    (*choices, (chosen.name, which)),
                )
                for each, choices in options
                for which, value in enumerate(chosen.operands[1:])
            ]
    return [
        Way(element_address(way.address, each), (*way.choices, *choices))
        for way in context.ways_of(it.operands[0], it.location)
        for each, choices in options
    ]


def _find_ways(context: Context, it: Instruction, selects: dict[str, Instruction]) -> None:
    if it.opcode == "alloca":
        context.ways[it.name] = [Way(Address(it.name))]
        size = it.flag.size  # type: ignore[attr-defined]
        if size and size % STREAM_BYTES == 0:
            context.streams.add(it.name)
            context.counts[it.name] = size // STREAM_BYTES
        else:
            variables = context.function.variables.get(it.name, [])
            name = variables[0].name if variables else it.name
            context.objects[it.name] = Object(it.flag, 0, Shape(), variables, False, name, True)  # type: ignore[arg-type]
    elif it.opcode == "getelementptr":
        context.ways[it.name] = _element_ways(context, it, selects)
    elif it.opcode in ("bitcast", "freeze"):
        context.ways[it.name] = context.ways_of(it.operands[0], it.location)
    elif it.opcode in ("select", "phi"):
        options = it.operands[1:] if it.opcode == "select" else it.operands
        context.ways[it.name] = [
            Way(way.address, (*way.choices, (it.name, which)))
            for which, operand in enumerate(options)
            if not isinstance(operand, Null)  # nothing may be accessed there
            for way in context.ways_of(operand, it.location)
        ]


def _instructions(function: Function) -> list[Instruction]:
    return [it for block in function.blocks.values() for it in block.instructions]


def _add_statics(module: Module, context: Context) -> None:
    """The global variables that the top and its stages use."""
    for static in sorted(context.function.statics):
        kept = module.statics[static]
        if kept.type.size and kept.type.size % STREAM_BYTES == 0:
            context.streams.add("@" + static)
            context.counts["@" + static] = kept.type.size // STREAM_BYTES
        else:
            name = kept.variable.name
            context.objects["@" + static] = Object(kept.type, 0, Shape(), [kept.variable], True, name)


def _strip_volatile(module: Module, context: Context) -> None:
    """Volatile variables that are no streams are variables: nothing else changes them while a job runs."""
    for it in _instructions(context.function):
        if it.opcode not in ("load", "store") or it.flag != "volatile":
            continue
        for way in context.ways_of(it.operands[-1], it.location):
            base = way.address.base
            declared = context.function.declared.get(base, "")
            if (declared and not declared.startswith(STREAM_TYPES)) or base in context.objects:
                it.flag = ""
                name = context.objects[base].name if base in context.objects else base
                if base in context.objects and context.objects[base].root.size >= STREAM_BYTES:
                    raise Unsupported(
                        it.location,
                        f"a stream inside of {name}, which has other members, too",
                        "declare the stream as a variable of its own",
                    )
                if base not in context.memories:
                    module.warnings.append((it.location, f"volatile {name} is taken as if it were not volatile"))


def _add_arrays(context: Context, bounds: Mapping[str, int]) -> None:
    """The array parameters of the top. They stay arrays even if all indices are constant."""
    for name, element in context.function.pointees.items():
        root = Array(bounds[name], element) if name in bounds else element
        if isinstance(root, Array) and name in context.ways and name not in context.memories:
            shape = Shape({(("any", 0),)})
            context.objects[name] = Object(root, 0, shape, context.function.variables.get(name, []), True, name)


def _invent_roots(context: Context) -> None:
    """What the references of the top lead to: one number each, as wide as declared, or as the widest access."""
    declared = {
        name: variable.number
        for name, _ in context.function.parameters
        for variable in context.function.variables.get(name, [])
        if variable.argument and variable.number is not None
    }
    references = context.ways.keys() - context.memories - context.objects.keys()
    widest = {name: Int(number[0]).size for name, number in declared.items() if name in references}
    for it in _instructions(context.function):
        if it.opcode not in ("load", "store") or it.flag == "volatile":
            continue
        kind = it.type if it.opcode == "load" else it.types[0]
        for address in (way.address for way in context.ways_of(it.operands[-1], it.location)):
            if address.base in context.objects or address.base in context.memories or address.base.startswith("@"):
                continue
            if address.offset or address.terms:
                raise Unsupported(
                    it.location,
                    f"the top uses {address.base} as an array or a struct in memory",
                    f"add #pragma HLS INTERFACE mode = m_axi port = {address.base}, compile a kernel of Vitis with "
                    "--flow vitis, where pointers are that, or pass streams and scalars",
                )
            widest[address.base] = max(widest.get(address.base, 0), kind.size)
    for name, size in widest.items():
        variables = context.function.variables.get(name, [])
        context.objects[name] = Object(Int(8 * size), 0, Shape(), variables, True, name)


def _learn(module: Module, context: Context, it: Instruction) -> None:
    """Streams and shapes, from one instruction."""
    if it.opcode in ("load", "store"):
        loads = it.opcode == "load"
        touched = (it.type if loads else it.types[0]).size
        for way in context.accessed_ways(it.operands[-1], touched, it.location):
            address = way.address
            if it.flag == "volatile" and address.base in context.memories:
                it.flag = ""  # every access to memory is made, once
            if address.base in context.memories and address.offset >= BURST_AT:
                if BURST_STREAMS[address.offset] in ("r", "w"):
                    context.granules[address.base].learn(Address(address.base), touched)
                continue
            if it.flag == "volatile":
                declared = context.function.declared.get(address.base, "")
                if declared and not declared.startswith(STREAM_TYPES):
                    raise Unsupported(
                        it.location,
                        f"a volatile access to {address.base}",
                        "leave out volatile, or put it into memory with INTERFACE m_axi",
                    )
                known = (*context.streams, *dict(context.function.parameters))
                if address.base not in known and address.base.removeprefix("@") not in context.function.statics:
                    raise Unsupported(
                        it.location,
                        "a stream of its own that is used outside the stages, or a volatile variable",
                        "call each stage as a statement of its own; its results come back by reference",
                    )
                context.streams.add(address.base)
            elif address.base in context.memories:
                context.granules[address.base].learn(address, touched, may_be_whole=loads or id(it) in context.together)
            else:
                _learn_access(context, address, touched, it.location)
    elif is_call_of_stage(module, it):
        _learn_call(module, context, it)
    elif it.opcode == "call" and str(it.flag).startswith(COPIES):
        size = getattr(it.operands[2], "bits", None)
        if size is None:
            raise Unsupported(it.location, "a copy whose length varies", "copy in a loop")
        for operand, of, stores in zip(it.operands[:2], it.types[:2], (True, False), strict=True):
            if isinstance(of, Pointer):
                may_be_whole = not stores or id(it) in context.together
                _learn_access(context, context.address(operand, it.location), size, it.location, may_be_whole)


def _learn_access(
    context: Context, address: Address, size: int, location: Location, may_be_whole: bool = False
) -> None:
    held = context.objects.get(address.base)
    if held is not None:
        held.shape.learn(walk(held.root, address.moved(held.offset), size, location))
    elif address.base in context.memories:
        context.granules[address.base].learn(address, size, may_be_whole=may_be_whole)
    elif not address.base.startswith("@"):
        raise Unsupported(
            location,
            f"memory behind the pointer {address.base}",
            f"add #pragma HLS INTERFACE mode = m_axi port = {address.base} to the top, compile a kernel of Vitis with "
            "--flow vitis, where pointers are that, or pass streams and scalars",
        )


def _learn_call(module: Module, context: Context, it: Instruction) -> None:
    callee = module.functions[str(it.flag)]
    if callee.name in (*context.callers, context.function.name):
        raise Unsupported(it.location, f"{callee.cpp_name} calls itself", "write it as a loop")
    bound: dict[str, Object] = {}
    memories: set[str] = set()
    granules: dict[str, Granule] = {}
    counts = {"@" + static: context.counts["@" + static] for static in callee.statics if "@" + static in context.counts}
    for (name, of), operand in zip(callee.parameters, it.operands, strict=True):
        if not isinstance(of, Pointer):
            continue
        address = context.address(operand, it.location)
        if address.base in context.counts and address.base not in context.objects:
            counts[name] = context.counts[address.base] - address.offset // STREAM_BYTES
        if address.base in context.memories:
            memories.add(name)
            granules[name] = context.granules[address.base]
            granules[name].learn(address, granules[name].element, may_be_whole=True)
            continue
        held = context.objects.get(address.base)
        if held is None:
            continue
        if address.terms:
            raise Unsupported(
                it.location, "an element chosen at run time is passed to a stage", "pass the array and the index"
            )
        variables = [*held.variables, *callee.variables.get(name, [])]
        offset = held.offset + address.offset
        bound[name] = Object(held.root, offset, held.shape, variables, True, name, held.is_local)
    for static in callee.statics:
        held = context.objects.get("@" + static)
        if held is not None:
            bound["@" + static] = Object(held.root, 0, held.shape, held.variables, True, held.name)
    stage = make_context(
        module, callee, bound, frozenset(memories), (*context.callers, context.function.name), counts, granules
    )
    context.calls[id(it)] = stage
    for (name, _), operand in zip(callee.parameters, it.operands, strict=True):
        if name in stage.streams:
            stage.counts.setdefault(name, 1)
            context.streams.add(context.address(operand, it.location).base)
    context.streams |= {name for name in stage.streams if name.startswith("@")}


def place_of(context: Context, it: Instruction) -> Location:
    """Where an instruction comes from; the function itself if it does not say."""
    return context.function.location if it.location == UNKNOWN else it.location
