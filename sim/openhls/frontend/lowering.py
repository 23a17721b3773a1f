# SPDX-License-Identifier: Apache-2.0
"""From the blocks of a function to the regions of a process: loops stay, branches become predicates and selects."""

from __future__ import annotations

import sys
from dataclasses import replace

from openhls.errors import Unsupported
from openhls.frontend import boolean
from openhls.frontend.accesses import Accesses
from openhls.frontend.assembly import Assembly
from openhls.frontend.boolean import Node
from openhls.frontend.context import ASSEMBLER, IGNORED, Context, is_call_of_stage, place_of
from openhls.frontend.draft import Draft
from openhls.frontend.flow import Flow
from openhls.frontend.graph import NaturalLoop
from openhls.frontend.llvm.module import Instruction, Local, Module
from openhls.frontend.loops import describe_loop
from openhls.frontend.memory import Memory
from openhls.frontend.pointers import Pointers
from openhls.frontend.pragmas import BEGIN_DATAFLOW, END_DATAFLOW, NEW_STREAM, Notes
from openhls.frontend.stages import Interface, Stages
from openhls.frontend.streams import Streams
from openhls.frontend.types import Int, Pointer
from openhls.frontend.values import lower_value
from openhls.ir import ADDRESS_BITS, UNKNOWN, Block, Carried, Loop, Operand, Process, Region, Result, Value
from openhls.lowered import Lowered
from openhls.wrapping import Wrapping

sys.setrecursionlimit(20000)

SUMS = frozenset({"add", "sub", "mul", "shl", "or", "sext", "zext", "trunc", "phi"})


class Lowering:
    """One process. `interfaces` are those of the stages it calls, by the id of the calling instruction."""

    def __init__(
        self, module: Module, context: Context, notes: Notes, interfaces: dict[int, Interface], name: str
    ) -> None:
        self._draft = draft = Draft(module, context, notes, name)
        self._context = context
        self._function = context.function
        self._builder = draft.builder
        self._values = draft.values
        self._flow = flow = Flow(draft)
        memory = Memory(draft)
        self._streams = streams = Streams(draft, memory, flow)
        self._pointers = pointers = Pointers(draft, flow, self._flush)
        self._stages = stages = Stages(draft, interfaces, memory, streams, pointers)
        self._accesses = Accesses(draft, flow, memory, streams, pointers, stages)
        self._memory = memory
        self._wrapping = Wrapping()
        self._assembly = Assembly(draft, memory, streams, stages, self._wrapping)
        self._regions: list[Region] = []
        self._loop_count = 0
        self._declared: set[str] = set()  # the objects whose life starts in an iteration of the present loop
        self._returns: list[tuple[Node, Operand | None]] = []
        self._uses = self._find_uses()
        self._addressing = self._find_sums()

    def _find_uses(self) -> dict[str, set[str]]:
        """The blocks that use a value."""
        uses: dict[str, set[str]] = {}
        for name in self._flow.graph.order:
            for it in self._function.blocks[name].instructions:
                for operand in it.operands:
                    if isinstance(operand, Local):
                        uses.setdefault(operand.name, set()).add(name)
        for name, ways in self._context.ways.items():
            for term, _ in (term for way in ways for term in way.address.terms):  # computed where the address is used
                if isinstance(term, Local):
                    uses.setdefault(term.name, set()).update(uses.get(name, set()))
        return uses

    def _find_sums(self) -> set[str]:
        """Bitwise ORs that are sums, for their operands share no bit, among what addresses of memory are made of."""
        addresses = (way.address for ways in self._context.ways.values() for way in ways)
        pending = [term for each in addresses if each.base in self._context.memories for term, _ in each.terms]
        made = {it.name: it for block in self._function.blocks.values() for it in block.instructions}
        seen: set[str] = set()
        while pending:
            operand = pending.pop()
            it = made.get(operand.name) if isinstance(operand, Local) else None
            if it is not None and it.name not in seen and it.opcode in SUMS:
                seen.add(it.name)
                pending += it.operands
        return {name for name in seen if made[name].opcode == "or" and "disjoint" in str(made[name].flag)}

    def run(self) -> Lowered:
        """The process of the function, not finished."""
        for name, of in self._function.parameters:
            if isinstance(of, Int) or name in self._context.memories:
                self._values[name] = self._assembly.add_number(name, of.width if isinstance(of, Int) else ADDRESS_BITS)
            elif not isinstance(of, Pointer):
                raise Unsupported(
                    self._function.location, f"the parameter {name} has no integer type", "use ap_int or int"
                )
        graph = self._flow.graph
        self._sequence(graph.order, graph.entry, graph.loops, boolean.TRUE)
        results = [(reach, value) for reach, value in self._returns if value is not None]
        result = self._flow.choose(results, boolean.TRUE, "result") if results else None
        self._flush()
        return self._assembly.lowered(self._regions, result)

    def callees(self) -> dict[str, Process]:
        return self._stages.callees()

    def interface(self, finished: Process) -> Interface:
        """What callers of the finished process connect."""
        return self._assembly.interface(finished)

    # ---- regions ----

    def _flush(self) -> None:
        operations = self._builder.take()
        if operations:
            self._regions.append(Block(self._draft.names.fresh("block"), operations, operations[0].location))

    def _sequence(self, order: list[str], header: str, loops: dict[str, NaturalLoop], reach: Node) -> None:
        """Lowers the blocks of one level, inner loops as a whole."""
        inside = {name for loop in loops.values() for name in loop.blocks}
        for name in order:
            if name in loops:
                self._loop(loops[name], [block for block in order if block in loops[name].blocks])
            elif name not in inside:
                self._flow.reach[name] = reach if name == header else self._flow.entering(name)
                self._block(name, name == header)

    # ---- loops ----

    def _loop(self, loop: NaturalLoop, order: list[str]) -> None:
        flow, header = self._flow, loop.header
        first = self._function.blocks[header].instructions
        phis = [it for it in first if it.opcode == "phi"]
        if self._stages.is_open:
            raise Unsupported(
                first[-1].location, "a loop between the stages of a dataflow region", "move it before them"
            )
        reach = flow.entering(header)
        enter = flow.build(reach)
        initial = [flow.choose(flow.incoming(it, header, False, loop), reach, it.name) for it in phis]
        self._flush()
        outer_regions, self._regions = self._regions, []
        outer_declared, self._declared = self._declared, set()
        outer_known, flow.known = flow.known, dict(flow.known)
        outer_loops = self._draft.loops
        self._loop_count += 1
        self._draft.loops = (*outer_loops, self._loop_count)
        self._builder.open_scope()
        for it in phis:
            assert isinstance(it.type, Int)
            self._draft.define(it.name, Value(self._draft.names.fresh(it.name), it.type.width))
        carried_values = [self._values[it.name] for it in phis]
        self._sequence(order, header, loop.inner, boolean.TRUE)
        repeat = flow.repeating(loop)
        again = flow.build(repeat)
        following = [flow.choose(flow.incoming(it, header, True, loop), repeat, it.name) for it in phis]
        exits = flow.exits(loop, order)
        indicators = [flow.build(flow.edges[edge]) for edge in exits] if len(exits) > 1 else []
        self._flush()
        body, self._regions = tuple(self._regions), outer_regions
        fresh = tuple(array.name for (base, _), array in self._memory.arrays.items() if base in self._declared)
        self._declared = outer_declared
        flow.known = outer_known
        self._draft.loops = outer_loops
        self._builder.close_scope()
        results = self._results(loop, order)
        for edge, indicator in zip(exits, indicators, strict=False):
            value = Value(self._draft.names.fresh("left"), 1)
            results.append(Result(value, indicator))
            flow.edges[edge] = flow.conditions.both(reach, flow.conditions.atom(value))
        if len(exits) == 1:
            flow.edges[exits[0]] = reach
        carried = tuple(
            Carried(value, before, after)
            for value, before, after in zip(carried_values, initial, following, strict=True)
            if isinstance(value, Value)
        )
        branch = flow.closing(loop)
        described = describe_loop(
            self._draft.module,
            self._draft.notes,
            self._memory,
            branch,
            place_of(self._context, branch),
            Loop("", carried, body, again, tuple(results), enter, fresh=fresh),
            self._draft.names,
        )
        nothing = Block(f"{described.label}_body", (), described.location)
        self._regions.append(replace(described, body=described.body or (nothing,)))

    def _results(self, loop: NaturalLoop, order: list[str]) -> list[Result]:
        """New values for what is used after the loop."""
        results: list[Result] = []
        for name in (it.name for block in order for it in self._function.blocks[block].instructions):
            used = self._uses.get(name, set())
            source = self._values.get(name)
            if isinstance(source, Value) and any(block not in loop.blocks for block in used):
                value = Value(self._draft.names.fresh(source.name), source.width)
                results.append(Result(value, source))
                self._draft.define(name, value)
        return sorted(results, key=lambda result: result.value.name)

    # ---- blocks ----

    def _block(self, name: str, is_header: bool) -> None:
        self._accesses.pointers.taken.clear()
        for it in self._function.blocks[name].instructions:
            place = place_of(self._context, it)
            if place.line or self._builder.location == UNKNOWN:  # clang gives merged code the line 0
                self._builder.location = place
            starts_loop = is_header and self._flow.is_loop_header(name)
            if isinstance(it.type, Pointer) and it.opcode in ("phi", "select"):
                if it.opcode == "phi" and starts_loop:
                    place = self._builder.location
                    raise Unsupported(place, "a pointer that moves in a loop", "use an array and an index")
                self._accesses.choose(it, self._flow.cases(it, name))
            elif it.opcode == "phi":
                if not starts_loop:
                    cases = self._flow.incoming(it, name, False, None)
                    self._draft.define(it.name, self._flow.choose(cases, self._flow.reach[name], it.name))
            else:
                self._instruction(it, name)

    def _instruction(self, it: Instruction, name: str) -> None:
        reach = self._flow.reach[name]
        match it.opcode:
            case "br":
                self._flow.branch(it, name, reach)
            case "switch":
                self._flow.switch(it, name, reach)
            case "ret":
                value = self._draft.operand(it.operands[0]) if it.operands else None
                self._returns.append((reach, value))
            case "unreachable" | "alloca" | "getelementptr":
                return
            case "load":
                self._draft.define(it.name, self._accesses.load(it, reach))
            case "store":
                self._accesses.store(it, reach)
            case "call":
                self._call(it, reach)
            case _ if isinstance(it.type, Pointer):
                return
            case _:
                if it.name in self._context.offsets:
                    self._accesses.choose(it, self._flow.cases(it, name))
                if any(isinstance(of, Pointer) for of in it.types):
                    raise self._draft.address_as_value()
                operands = [self._draft.operand(each) for each in it.operands]
                if it.name in self._addressing:  # clang writes 16 * i + j as 16 * i | j
                    it.opcode = "add"
                self._draft.define(it.name, lower_value(self._builder, it, operands))
                if isinstance(it.flag, frozenset):
                    self._wrapping.learn(it.opcode, it.flag, operands, self._values[it.name])

    # ---- calls ----

    def _call(self, it: Instruction, reach: Node) -> None:
        callee = str(it.flag)
        if callee.startswith("llvm.lifetime.start"):
            self._declared |= {operand.name for operand in it.operands if isinstance(operand, Local)}
        if callee.startswith(IGNORED):
            return
        if callee.startswith(ASSEMBLER):
            self._mark(it, callee.removeprefix(ASSEMBLER), reach)
        elif callee == "llvm.trap":
            place, what = self._builder.location, "an exception, or a trap, in what becomes hardware"
            raise Unsupported(place, what, "let the testbench check it, or return a status")
        elif callee.startswith(("llvm.memcpy", "llvm.memmove", "llvm.memset")):
            self._accesses.copy(it, reach)
        elif is_call_of_stage(self._draft.module, it):
            self._stages.call(it, reach)
        else:
            operands = [self._draft.operand(each) for each in it.operands]
            self._draft.define(it.name, lower_value(self._builder, it, operands))

    def _mark(self, it: Instruction, text: str, reach: Node) -> None:
        """The beginning of a stream, the beginning or the end of a dataflow region."""
        if text == NEW_STREAM:
            self._streams.begin(self._context.address(it.operands[0], self._builder.location), reach)
        elif text == BEGIN_DATAFLOW:
            self._stages.begin(it, reach)
        elif text == END_DATAFLOW:
            opened = self._stages.end(reach)
            enter = self._flow.build(reach)
            self._flush()
            self._regions.append(self._stages.region(opened, enter))
        else:
            raise Unsupported(self._builder.location, "assembler code", "write it in C++")
