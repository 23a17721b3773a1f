# SPDX-License-Identifier: Apache-2.0
"""From the blocks of a function to the regions of a process: loops stay, branches become predicates and selects."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace

from openhls.errors import Unsupported
from openhls.frontend import boolean
from openhls.frontend.addresses import DEPTH_AT, EMPTY_AT, FULL_AT, STREAM_BYTES, WRITE_AT, Address, Path
from openhls.frontend.boolean import Conditions, Node
from openhls.frontend.builder import Builder
from openhls.frontend.bursts import Bursts
from openhls.frontend.context import ASSEMBLER, IGNORED, Context, is_call_of_stage, place_of
from openhls.frontend.graph import Graph, NaturalLoop
from openhls.frontend.llvm.module import Instruction, Local, Module, Number
from openhls.frontend.llvm.module import Operand as LlvmOperand
from openhls.frontend.loops import describe_loop
from openhls.frontend.memory import Memory
from openhls.frontend.names import Names
from openhls.frontend.pragmas import BEGIN_DATAFLOW, END_DATAFLOW, Notes
from openhls.frontend.promote import MOST_ELEMENTS, Promotion, State, slots
from openhls.frontend.tidy import live_values, tidy
from openhls.frontend.types import Int, Pointer
from openhls.frontend.values import lower_value
from openhls.frontend.wrapping import Wrapping
from openhls.ir import (
    ADDRESS_BITS,
    FALSE,
    TRUE,
    UNKNOWN,
    Array,
    Block,
    Call,
    Carried,
    Const,
    Dataflow,
    Direction,
    Fifo,
    Loop,
    Opcode,
    Operand,
    Partition,
    Process,
    Region,
    Result,
    Stream,
    Value,
)

Edge = tuple[str, str]
sys.setrecursionlimit(20000)


@dataclass
class StreamUse:
    """How a process uses a stream: its name, and width and direction once they are known."""

    name: str
    width: int = 0
    directions: set[Direction] = field(default_factory=set)
    depth: int = 2


@dataclass
class Interface:
    """What the callers of a process must connect: leaves by parameter, streams by parameter and position."""

    process: Process
    scalars: list[tuple[str, str, Path | None]]  # name, parameter, leaf (None: the parameter itself)
    outputs: list[tuple[str, str, Path | None]]
    streams: list[tuple[str, str, int]]  # name, parameter, which stream of an array of streams
    arrays: list[tuple[str, str, Path]]
    memories: list[tuple[str, str]]  # stream of a memory port, parameter


@dataclass
class _OpenDataflow:
    reach: Node
    instruction: Instruction
    calls: list[tuple[Call, list[tuple[str, Path, Value]]]] = field(default_factory=list)
    written: set[tuple[str, Path]] = field(default_factory=set)
    pointers: set[str] = field(default_factory=set)  # into memory, that stages have


class Lowering:
    """One process. `interfaces` are those of the stages it calls, by the id of the calling instruction."""

    def __init__(
        self, module: Module, context: Context, notes: Notes, interfaces: dict[int, Interface], name: str, is_top: bool
    ) -> None:
        self._module = module
        self._context = context
        self._function = context.function
        self._notes = notes
        self._interfaces = interfaces
        self._name = name
        self._is_top = is_top
        self._graph = Graph(self._function)
        self._builder = Builder(Names())
        self._memory = Memory(module, context, notes, self._builder)
        self._values = self._memory.values
        for name, _ in self._function.parameters:
            self._memory.reserved[name] = self._builder.names.fresh(name.removesuffix(".coerce"))
        self._conditions = Conditions()
        self._known: dict[Node, Operand] = {boolean.TRUE: TRUE, boolean.FALSE: FALSE}
        self._edges: dict[Edge, Node] = {}
        self._reach: dict[str, Node] = {}
        self._regions: list[Region] = []
        self._streams: dict[tuple[str, int], StreamUse] = {}
        self._lent: dict[str, Stream] = {}  # streams of memory ports that stages use
        self._returns: list[tuple[Node, Operand | None]] = []
        self._open: _OpenDataflow | None = None
        self._wrapping = Wrapping()
        self._shared: set[str] = set()  # arrays that stages use
        self._chosen: dict[tuple[str, int], Node] = {}  # conditions under which pointers are chosen
        self._uses = self._find_uses()

    def _find_uses(self) -> dict[str, set[str]]:
        uses: dict[str, set[str]] = {}
        for name in self._graph.order:
            for it in self._function.blocks[name].instructions:
                for operand in it.operands:
                    if isinstance(operand, Local):
                        uses.setdefault(operand.name, set()).add(name)
        for name, ways in self._context.ways.items():
            for term, _ in (term for way in ways for term in way.address.terms):  # computed where the address is used
                if isinstance(term, Local):
                    uses.setdefault(term.name, set()).update(uses.get(name, set()))
        return uses

    # ---- the process ----

    def run(self) -> Interface:
        """Lowers the function."""
        scalars: list[tuple[str, str, Path | None]] = []
        arguments: list[Value] = []
        for name, of in self._function.parameters:
            if isinstance(of, Int) or name in self._context.memories:
                value = Value(self._memory.reserved[name], of.width if isinstance(of, Int) else ADDRESS_BITS)
                arguments.append(value)
                self._values[name] = value
                scalars.append((value.name, name, None))
            elif not isinstance(of, Pointer):
                raise Unsupported(
                    self._function.location, f"the parameter {name} has no integer type", "use ap_int or int"
                )
        self._sequence(self._graph.order, self._graph.entry, self._graph.loops, boolean.TRUE)
        results = [(reach, value) for reach, value in self._returns if value is not None]
        result = self._choose(results, boolean.TRUE, "result") if results else None
        self._flush()
        return self._interface(scalars, arguments, result)

    def _interface(
        self, scalars: list[tuple[str, str, Path | None]], arguments: list[Value], result: Operand | None
    ) -> Interface:
        """Brings scalars behind references in and out as values, and puts the process together."""
        leaves = {key: array for key, array in self._memory.arrays.items() if self._becomes_values(key, array)}
        state: State = {slot: Const(array.width, 0) for array in leaves.values() for slot in slots(array)}
        given = [(key, array) for key, array in leaves.items() if self._context.objects[key[0]].external]
        for (base, path), array in given:
            is_output = self._is_output(base, path)
            name = self._builder.names.fresh(f"{array.name}_in") if is_output else array.name
            width, is_signed = self._declared(base, array.width)
            value = Value(name, width)
            extend = Opcode.SEXT if is_signed else Opcode.ZEXT
            state[slots(array)[0]] = self._builder.make(extend, array.width, value)
            scalars.append((value.name, base, path))
            arguments.append(value)
        extended = self._builder.take()
        promotion = Promotion(self._builder.names, list(leaves.values()), state)
        body = promotion.regions(tuple(self._regions))
        if extended:
            body = (Block(self._builder.names.fresh("entry"), extended, self._function.location), *body)
        outputs = [
            (
                "result" if base == self._function.returned else array.name,
                base,
                path,
                self._builder.make(
                    Opcode.EXTRACT, self._declared(base, array.width)[0], promotion.state[slots(array)[0]]
                ),
            )
            for (base, path), array in given
            if self._is_output(base, path)
        ]
        narrowed = self._builder.take()
        if narrowed:
            body = (*body, Block(self._builder.names.fresh("exit"), narrowed, self._function.location))
        if result is not None:
            outputs.append(("result", "", None, promotion.value(result)))  # type: ignore[arg-type]
        arrays = tuple(array for key, array in self._memory.arrays.items() if key not in leaves)
        process = Process(
            self._name,
            tuple(arguments),
            tuple(self._ports()),
            arrays,
            body,
            tuple((name, operand) for name, _, _, operand in outputs),
            self._function.location,
        )
        pointers = {self._memory.reserved[name]: name for name in self._context.memories}
        lent = {name.rpartition("_")[0]: each.width for name, each in self._lent.items() if name.endswith(("_r", "_w"))}
        bursts = Bursts(self._builder.names, set(pointers), self._wrapping, lent)
        process = tidy(bursts.rewrite(tidy(process)))
        used = self._lent | bursts.streams
        process = replace(process, streams=(*process.streams, *used.values()))
        # Numbers stay even if they are not used; a pointer without accesses is no port.
        plain = {name for name, _, path in scalars if path is None and name not in pointers}
        needed = live_values(process) | {value for value in arguments if value.name in plain}
        process = replace(process, scalars=tuple(value for value in arguments if value in needed))
        kept = {value.name for value in process.scalars}
        return Interface(
            process,
            [each for each in scalars if each[0] in kept],
            [(name, base, path) for name, base, path, _ in outputs],
            [(use.name, base, which) for (base, which), use in self._streams.items() if base in self._parameters],
            [(array.name, base, path) for (base, path), array in self._memory.arrays.items() if array.external],
            [(name, pointers[name.rpartition("_")[0]]) for name in used],
        )

    def _declared(self, base: str, width: int) -> tuple[int, bool]:
        """Width and sign of a number behind a reference of the top; memory pads numbers, ports do not."""
        if not self._is_top:
            return width, False
        if base == self._function.returned:
            return self._function.declared_result or (width, False)
        types = [variable.number for variable in self._function.variables.get(base, []) if variable.argument]
        return next((number for number in types if number is not None and number[0] <= width), (width, False))

    def _as_declared(self, base: str, value: Operand) -> Operand:
        return self._builder.make(Opcode.EXTRACT, self._declared(base, value.width)[0], value)

    def _becomes_values(self, key: tuple[str, Path], array: Array) -> bool:
        """Scalars, and arrays in registers that no stage uses."""
        if array.external or array.initial is not None or key[0] not in self._context.objects:
            return False
        if array.name in self._shared:
            return False
        return array.length == 1 or (array.partition is Partition.COMPLETE and array.length <= MOST_ELEMENTS)

    def _is_output(self, base: str, path: Path) -> bool:
        return (base, path) in self._memory.stored and base not in self._function.by_value

    @property
    def _parameters(self) -> set[str]:
        return {name for name, _ in self._function.parameters}

    def _ports(self) -> list[Stream]:
        return [self._port(use) for (base, _), use in self._streams.items() if base in self._parameters]

    def _port(self, use: StreamUse) -> Stream:
        if len(use.directions) != 1:
            raise Unsupported(
                self._function.location,
                f"{self._name} reads and writes the stream {use.name}",
                "let one stage write it and another one read it",
            )
        return Stream(use.name, use.width, next(iter(use.directions)), self._function.location)

    # ---- regions ----

    def _flush(self) -> None:
        operations = self._builder.take()
        if operations:
            self._regions.append(Block(self._builder.names.fresh("block"), operations, operations[0].location))

    def _sequence(self, order: list[str], header: str, loops: dict[str, NaturalLoop], reach: Node) -> None:
        """Lowers the blocks of one level, inner loops as a whole."""
        inside = {name for loop in loops.values() for name in loop.blocks}
        for name in order:
            if name in loops:
                self._loop(loops[name], [block for block in order if block in loops[name].blocks])
            elif name not in inside:
                self._reach[name] = reach if name == header else self._entering(name)
                self._block(name, name == header)

    def _entering(self, name: str) -> Node:
        total = boolean.FALSE
        for before in self._graph.predecessors[name]:
            total = self._conditions.either(total, self._edges.get((before, name), boolean.FALSE))
        return total

    def _build(self, node: Node) -> Operand:
        """A condition as an operand, in the current block."""
        return self._conditions.build(
            node,
            lambda condition, a, b: self._builder.make(Opcode.SELECT, 1, condition, a, b, hint="when"),
            self._known,
        )

    def _choose(self, cases: list[tuple[Node, Operand]], care: Node, hint: str) -> Operand:
        """The value of the case whose condition holds; one of them does wherever `care` does."""
        grouped: dict[Operand, Node] = {}
        for node, operand in cases:
            grouped[operand] = self._conditions.either(grouped.get(operand, boolean.FALSE), node)
        (result, _), *rest = reversed(grouped.items())
        for operand, node in rest:
            condition = self._build(self._conditions.restrict(node, care))
            result = self._builder.make(Opcode.SELECT, operand.width, condition, operand, result, hint=hint)
        return result

    def _incoming(
        self, it: Instruction, name: str, latches: bool, loop: NaturalLoop | None
    ) -> list[tuple[Node, Operand]]:
        """The cases of a phi: those from the latches of its loop, or the others."""
        cases = []
        assert isinstance(it.flag, list)
        for before, operand in zip(it.flag, it.operands, strict=True):
            if loop is not None and (before in loop.blocks) != latches:
                continue
            if (before, name) in self._edges:
                cases.append((self._edges[(before, name)], self._operand(operand)))
        return cases

    # ---- loops ----

    def _loop(self, loop: NaturalLoop, order: list[str]) -> None:
        header = loop.header
        first = self._function.blocks[header].instructions
        phis = [it for it in first if it.opcode == "phi"]
        if self._open is not None:
            raise Unsupported(
                first[-1].location, "a loop between the stages of a dataflow region", "move it before them"
            )
        reach = self._entering(header)
        enter = self._build(reach)
        initial = [self._choose(self._incoming(it, header, False, loop), reach, it.name) for it in phis]
        self._flush()
        outer_regions, self._regions = self._regions, []
        outer_known, self._known = self._known, dict(self._known)
        self._builder.open_scope()
        for it in phis:
            assert isinstance(it.type, Int)
            self._values[it.name] = Value(self._builder.names.fresh(it.name), it.type.width)
        carried_values = [self._values[it.name] for it in phis]
        self._sequence(order, header, loop.inner, boolean.TRUE)
        repeat = boolean.FALSE
        for latch in loop.latches:
            repeat = self._conditions.either(repeat, self._edges[(latch, header)])
        again = self._build(repeat)
        following = [self._choose(self._incoming(it, header, True, loop), repeat, it.name) for it in phis]
        exits = self._exits(loop, order)
        indicators = [self._build(self._edges[edge]) for edge in exits] if len(exits) > 1 else []
        self._flush()
        body, self._regions = tuple(self._regions), outer_regions
        self._known = outer_known
        self._builder.close_scope()
        results = self._results(loop)
        for edge, indicator in zip(exits, indicators, strict=False):
            value = Value(self._builder.names.fresh("left"), 1)
            results.append(Result(value, indicator))
            self._edges[edge] = self._conditions.both(reach, self._conditions.atom(value))
        if len(exits) == 1:
            self._edges[exits[0]] = reach
        carried = tuple(
            Carried(value, before, after)
            for value, before, after in zip(carried_values, initial, following, strict=True)
            if isinstance(value, Value)
        )
        latch_branch = next(
            (self._last(latch) for latch in loop.latches if self._last(latch).loop >= 0), self._last(loop.latches[0])
        )
        self._regions.append(
            describe_loop(
                self._module,
                self._notes,
                self._memory,
                latch_branch,
                place_of(self._context, latch_branch),
                Loop("", carried, body, again, tuple(results), enter),
                self._builder.names,
            )
        )

    def _last(self, name: str) -> Instruction:
        return self._function.blocks[name].instructions[-1]

    def _exits(self, loop: NaturalLoop, order: list[str]) -> list[Edge]:
        return [
            (name, target)
            for name in order
            for target in dict.fromkeys(self._graph.successors[name])
            if target not in loop.blocks and self._edges.get((name, target), boolean.FALSE) != boolean.FALSE
        ]

    def _results(self, loop: NaturalLoop) -> list[Result]:
        """New values for what is used after the loop."""
        results: list[Result] = []
        for name in (it.name for block in loop.blocks for it in self._function.blocks[block].instructions):
            used = self._uses.get(name, set())
            source = self._values.get(name)
            if isinstance(source, Value) and any(block not in loop.blocks for block in used):
                value = Value(self._builder.names.fresh(source.name), source.width)
                results.append(Result(value, source))
                self._values[name] = value
        return sorted(results, key=lambda result: result.value.name)

    # ---- blocks ----

    def _block(self, name: str, is_header: bool) -> None:
        for it in self._function.blocks[name].instructions:
            place = place_of(self._context, it)
            if place.line or self._builder.location == UNKNOWN:  # clang gives merged code the line 0
                self._builder.location = place
            if isinstance(it.type, Pointer) and it.opcode in ("phi", "select"):
                self._choose_pointer(it, name, is_header)
            elif it.opcode == "phi":
                if not is_header or not self._is_loop_header(name):
                    cases = self._incoming(it, name, False, None)
                    self._values[it.name] = self._choose(cases, self._reach[name], it.name)
            else:
                self._instruction(it, name)

    def _choose_pointer(self, it: Instruction, name: str, is_header: bool) -> None:
        if it.opcode == "select":
            condition = self._condition(self._operand(it.operands[0]))
            nodes = [condition, self._conditions.negate(condition)]
        elif is_header and self._is_loop_header(name):
            raise Unsupported(self._builder.location, "a pointer that moves in a loop", "use an array and an index")
        else:
            assert isinstance(it.flag, list)
            nodes = [self._edges.get((before, name), boolean.FALSE) for before in it.flag]
        for which, node in enumerate(nodes):
            self._chosen[(it.name, which)] = node

    def _ways(self, operand: LlvmOperand, reach: Node) -> list[tuple[Node, Address]]:
        """Where a pointer leads, and when."""
        found = []
        for way in self._context.ways_of(operand, self._builder.location):
            node = reach
            for choice in way.choices:
                node = self._conditions.both(node, self._chosen[choice])
            if node != boolean.FALSE or reach == boolean.FALSE:
                found.append((node, way.address))
        return found

    def _is_loop_header(self, name: str) -> bool:
        return any(self._graph.dominates(name, before) for before in self._graph.predecessors[name])

    def _operand(self, operand: LlvmOperand) -> Operand:
        if isinstance(operand, Number):
            return Const(operand.width, operand.bits)
        if isinstance(operand, Local) and operand.name in self._values:
            return self._values[operand.name]
        raise self._address_as_value()

    def _address_as_value(self) -> Unsupported:
        return Unsupported(self._builder.location, "an address used as a value", "use an array and an index")

    def _instruction(self, it: Instruction, name: str) -> None:
        reach = self._reach[name]
        match it.opcode:
            case "br":
                self._branch(it, name, reach)
            case "switch":
                self._switch(it, name, reach)
            case "ret":
                value = self._operand(it.operands[0]) if it.operands else None
                self._returns.append((reach, value))
            case "unreachable" | "alloca" | "getelementptr":
                return
            case "load":
                read = self._read if it.flag == "volatile" else self._load
                cases = [(node, read(it, address, node)) for node, address in self._ways(it.operands[0], reach)]
                self._values[it.name] = self._choose(cases, reach, it.name)
            case "store":
                write = self._write if it.flag == "volatile" else self._store
                for node, address in self._ways(it.operands[1], reach):
                    write(it, address, node)
            case "call":
                self._call(it, reach)
            case _ if isinstance(it.type, Pointer):
                return
            case _:
                if it.name in self._context.offsets:
                    self._choose_pointer(it, name, is_header=False)
                if any(isinstance(of, Pointer) for of in it.types):
                    raise self._address_as_value()
                operands = [self._operand(each) for each in it.operands]
                self._values[it.name] = lower_value(self._builder, it, operands)
                self._wrapping.learn(it, operands, self._values[it.name])

    def _branch(self, it: Instruction, name: str, reach: Node) -> None:
        assert isinstance(it.flag, list)
        if len(it.flag) == 1:
            self._edges[(name, it.flag[0])] = reach
            return
        condition = self._condition(self._operand(it.operands[0]))
        for target, node in zip(it.flag, (condition, self._conditions.negate(condition)), strict=True):
            before = self._edges.get((name, target), boolean.FALSE) if it.flag[0] == it.flag[1] else boolean.FALSE
            self._edges[(name, target)] = self._conditions.either(before, self._conditions.both(reach, node))

    def _condition(self, operand: Operand) -> Node:
        if isinstance(operand, Const):
            return boolean.TRUE if operand.bits else boolean.FALSE
        return self._conditions.atom(operand)

    def _switch(self, it: Instruction, name: str, reach: Node) -> None:
        assert isinstance(it.flag, list)
        subject = self._operand(it.operands[0])
        targets: dict[str, Node] = {}
        rest = boolean.TRUE
        closed = self._last(it.flag[0]).opcode == "unreachable" or len(it.flag) > 1 << subject.width
        for number, (target, case) in enumerate(zip(it.flag[1:], it.operands[1:], strict=True), 2):
            equal = boolean.TRUE  # for the last case, if there is no other one
            if not closed or number < len(it.flag):
                equal = self._condition(self._builder.make(Opcode.EQ, 1, subject, self._operand(case)))
            taken = self._conditions.both(rest, equal)
            targets[target] = self._conditions.either(targets.get(target, boolean.FALSE), taken)
            rest = self._conditions.both(rest, self._conditions.negate(equal))
        targets[it.flag[0]] = self._conditions.either(targets.get(it.flag[0], boolean.FALSE), rest)
        for target, node in targets.items():
            self._edges[(name, target)] = self._conditions.both(reach, node)

    # ---- streams ----

    def _stream(self, address: Address) -> tuple[StreamUse, int]:
        which, place = divmod(address.offset, STREAM_BYTES)
        if address.terms:
            raise Unsupported(self._builder.location, "a stream chosen at run time", "unroll the loop over the streams")
        key = (address.base, which)
        if key not in self._streams:
            variables = self._function.variables.get(address.base, [])
            wish = variables[0].name if variables else address.base
            reserved = self._memory.reserved.get(address.base) if which == 0 else None
            use = StreamUse(reserved or self._builder.names.fresh(f"{wish}_{which}" if which else wish))
            use.depth = self._memory.depth(variables) or use.depth
            self._streams[key] = use
        return self._streams[key], place

    def _accessed(self, address: Address) -> tuple[StreamUse, int]:
        """A stream that the process itself reads or writes."""
        use, place = self._stream(address)
        if place != DEPTH_AT and address.base not in self._parameters:
            raise Unsupported(
                self._builder.location,
                f"the stream {use.name} is used outside the stages",
                "let a stage read or write it: a call that is a statement of its own, in the DATAFLOW scope",
            )
        return use, place

    def _place(self, address: Address, size: int) -> Operand:
        """The byte address of an access to memory, of elements of `size` bytes."""
        # A stride of 1 is p[byte / size] where clang knows that nothing is cut off: whole elements, too.
        steps = [address.offset, *(stride for _, stride in address.terms if stride != 1)]
        if any(step % size for step in steps):
            raise Unsupported(
                self._builder.location,
                f"elements of {size} bytes that do not lie one after the other in memory",
                "pad the struct to 1, 2, 4 ... 128 bytes, and access it as a whole",
            )
        place: Operand = self._values[address.base]
        for term, stride in address.terms:
            index = self._operand(term)
            wide = index if index.width == ADDRESS_BITS else self._builder.make(Opcode.SEXT, ADDRESS_BITS, index)
            scaled = self._builder.make(Opcode.MUL, ADDRESS_BITS, wide, Const(ADDRESS_BITS, stride))
            place = self._builder.make(Opcode.ADD, ADDRESS_BITS, place, scaled)
        offset = Const(ADDRESS_BITS, address.offset % (1 << ADDRESS_BITS))
        return self._builder.make(Opcode.ADD, ADDRESS_BITS, place, offset)

    def _lend(self, interface: Interface, parameter: str, address: Address) -> Operand:
        """The address that a stage gets; it has the pointer for itself."""
        assert self._open is not None
        if address.base in self._open.pointers:
            raise Unsupported(
                self._builder.location,
                f"the pointer {address.base} is passed to two stages of a dataflow region, or twice to one",
                "let one stage access it, or make it two arguments of the top",
            )
        self._open.pointers.add(address.base)
        lent = {name for name, owner in interface.memories if owner == parameter and name.endswith(("_r", "_w"))}
        widths = [stream.width for stream in interface.process.streams if stream.name in lent]
        return self._place(address, max([8, *widths]) // 8)

    def _load_memory(self, address: Address, size: int, reach: Node, hint: str) -> Operand:
        operands = (self._place(address, size),)
        target = self._memory.reserved[address.base]
        return self._builder.access(Opcode.LOAD, target, operands, 8 * size, self._build(reach), hint)

    def _store_memory(self, address: Address, value: Operand, size: int, reach: Node) -> None:
        word = value if value.width == 8 * size else self._builder.make(Opcode.ZEXT, 8 * size, value)
        target = self._memory.reserved[address.base]
        self._builder.access(Opcode.STORE, target, (self._place(address, size), word), 0, self._build(reach))

    def _load(self, it: Instruction, address: Address, reach: Node) -> Operand:
        if address.base in self._context.memories:
            assert isinstance(it.type, Int)
            value = self._load_memory(address, it.type.size, reach, it.name)
            return self._builder.make(Opcode.EXTRACT, it.type.width, value)
        self._check_open(address)
        return self._memory.load(address, it.type, self._build(reach), it.name, self._builder.location)

    def _store(self, it: Instruction, address: Address, reach: Node) -> None:
        value = self._operand(it.operands[0])
        if address.base in self._context.memories:
            self._store_memory(address, value, it.types[0].size, reach)
        else:
            self._memory.store(address, value, it.types[0].size, self._build(reach), self._builder.location)

    def _read(self, it: Instruction, address: Address, reach: Node) -> Operand:
        use, place = self._accessed(address)
        assert isinstance(it.type, Int)
        predicate = self._build(reach)
        if place in (EMPTY_AT, FULL_AT):
            opcode, width = (Opcode.EMPTY if place == EMPTY_AT else Opcode.FULL), 1
            predicate = TRUE if place == EMPTY_AT else predicate  # a look at a stream changes nothing
            use.directions.add(Direction.READ if place == EMPTY_AT else Direction.WRITE)
        else:
            opcode, width = Opcode.READ, place // 64
            use.directions.add(Direction.READ)
            use.width = width
        value = self._builder.access(opcode, use.name, (), width, predicate, it.name)
        return self._builder.make(Opcode.ZEXT, it.type.width, value)

    def _write(self, it: Instruction, address: Address, reach: Node) -> None:
        use, place = self._accessed(address)
        value = self._operand(it.operands[0])
        if place == DEPTH_AT:
            assert isinstance(value, Const)
            use.depth = self._memory.depth(self._function.variables.get(address.base, [])) or value.bits
            return
        width = (place - WRITE_AT) // 64
        use.directions.add(Direction.WRITE)
        use.width = width
        word = self._builder.make(Opcode.EXTRACT, width, value)
        self._builder.access(Opcode.WRITE, use.name, (word,), 0, self._build(reach))

    # ---- calls ----

    def _call(self, it: Instruction, reach: Node) -> None:
        callee = str(it.flag)
        if callee.startswith(IGNORED):
            return
        if callee.startswith(ASSEMBLER):
            self._marker(it, callee.removeprefix(ASSEMBLER), reach)
        elif callee.startswith(("llvm.memcpy", "llvm.memmove", "llvm.memset")):
            self._copy(it, reach)
        elif is_call_of_stage(self._module, it):
            self._stage(it, reach)
        else:
            operands = [self._operand(each) for each in it.operands]
            self._values[it.name] = lower_value(self._builder, it, operands)

    def _copy(self, it: Instruction, reach: Node) -> None:
        location = self._builder.location
        predicate = self._build(reach)
        assert isinstance(it.operands[2], Number)
        size = it.operands[2].bits
        target = self._context.address(it.operands[0], location)
        if "memset" in str(it.flag):
            byte = self._operand(it.operands[1])
            value = self._builder.make(Opcode.CONCAT, 8 * size, *([byte] * size))
        else:
            source = self._context.address(it.operands[1], location)
            if source.base in self._context.memories:
                value = self._load_memory(source, size, reach, "")
            else:
                value = self._memory.load(source, Int(8 * size), predicate, "", location)
                self._check_open(source)
        if target.base in self._context.memories:
            self._store_memory(target, value, size, reach)
        else:
            self._memory.store(target, value, size, predicate, location)

    def _marker(self, it: Instruction, text: str, reach: Node) -> None:
        if text == BEGIN_DATAFLOW:
            if self._open is not None:
                raise Unsupported(self._builder.location, "two dataflow regions in one another", "make one a function")
            self._open = _OpenDataflow(reach, it)
        elif text == END_DATAFLOW:
            self._close_dataflow(reach)
        else:
            raise Unsupported(self._builder.location, "assembler code", "write it in C++")

    def _check_open(self, address: Address) -> None:
        if self._open is not None and any(base == address.base for base, _ in self._open.written):
            raise Unsupported(
                self._builder.location,
                f"a stage needs the scalar {address.base} of another stage",
                "send it through a stream",
            )

    def _stage(self, it: Instruction, reach: Node) -> None:
        interface = self._interfaces[id(it)]
        if self._open is None or self._open.reach != reach:
            raise Unsupported(
                self._builder.location,
                f"a call of {interface.process.name} that is not a stage of the dataflow region on every run",
                "call all stages unconditionally, at the top level of the function that has the DATAFLOW pragma",
            )
        parameters = [name for name, _ in self._module.functions[str(it.flag)].parameters]
        given = dict(zip(parameters, it.operands, strict=True))
        scalars, results, bound = [], [], []
        for name, parameter, leaf in interface.scalars:
            if leaf is None and isinstance(self._types_of(it)[parameter], Pointer):
                address = self._context.address(given[parameter], self._builder.location)
                operand = self._lend(interface, parameter, address)
            elif leaf is None:
                operand = self._operand(given[parameter])
            else:
                base = self._context.address(given[parameter], self._builder.location).base
                if (base, leaf) in self._open.written:
                    self._check_open(Address(base))
                self._declare(base, leaf)
                operand = self._memory.load_leaf(base, leaf)
            scalars.append((name, operand))
        for name, parameter, leaf in interface.outputs:
            value = Value(
                self._builder.names.fresh(f"{interface.process.name}_{name}"), self._width_of(interface, name)
            )
            bound.append((name, value))
            if leaf is not None:
                base = self._context.address(given[parameter], self._builder.location).base
                self._declare(base, leaf)
                self._open.written.add((base, leaf))
                results.append((base, leaf, value))
            else:
                self._values[it.name] = value
        streams = []
        for name, parameter, which in interface.streams:
            use, _ = self._stream(
                self._context.address(given[parameter], self._builder.location).moved(which * STREAM_BYTES)
            )
            port = next(port for port in interface.process.streams if port.name == name)
            use.width = port.width
            use.directions.add(port.direction)
            streams.append((name, use.name))
        for name, parameter in interface.memories:
            base = self._context.address(given[parameter], self._builder.location).base
            lent = f"{self._memory.reserved[base]}_{name.rpartition('_')[2]}"
            port = next(port for port in interface.process.streams if port.name == name)
            if self._lent.setdefault(lent, replace(port, name=lent)).width != port.width:
                raise Unsupported(
                    self._builder.location,
                    f"stages take elements of different sizes from {base}",
                    "access whole elements of one type",
                )
            streams.append((name, lent))
        arrays = []
        for name, parameter, leaf in interface.arrays:
            base = self._context.address(given[parameter], self._builder.location).base
            arrays.append((name, self._declare(base, leaf).name))
            self._shared.add(arrays[-1][1])
        call = Call(
            interface.process.name, tuple(scalars), tuple(streams), tuple(arrays), tuple(bound), self._builder.location
        )
        self._open.calls.append((call, results))

    def _types_of(self, it: Instruction) -> dict[str, object]:
        return dict(self._module.functions[str(it.flag)].parameters)

    def _width_of(self, interface: Interface, output: str) -> int:
        return next(operand.width for name, operand in interface.process.outputs if name == output)

    def _declare(self, base: str, leaf: Path) -> Array:
        """The array of a leaf that a stage uses."""
        return self._memory.declare(base, self._context.objects[base], leaf)

    def _close_dataflow(self, reach: Node) -> None:
        opened = self._open
        if opened is None or opened.reach != reach:
            raise Unsupported(
                self._builder.location, "a dataflow region that is left half-way", "return only after its last stage"
            )
        self._open = None
        enter = self._build(reach)
        self._flush()
        used = {name for call, _ in opened.calls for _, name in call.streams}
        fifos = [
            Fifo(use.name, use.width, use.depth, self._builder.location)
            for (base, _), use in self._streams.items()
            if base not in self._parameters and use.name in used
        ]
        calls = tuple(call for call, _ in opened.calls)
        label = self._builder.names.fresh("stages")
        self._regions.append(Dataflow(label, tuple(fifos), calls, enter, place_of(self._context, opened.instruction)))
        for _, results in opened.calls:
            for base, leaf, value in results:
                self._memory.store_leaf(base, leaf, value, enter)
