# SPDX-License-Identifier: Apache-2.0
"""The streams of a process: its ports, those between the stages of its dataflow regions, and its own queues.

A queue is a stream that the process itself writes and reads (passes/queues.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openhls.errors import Unsupported
from openhls.frontend.addresses import DEPTH_AT, EMPTY_AT, FULL_AT, STREAM_BYTES, WRITE_AT, Address
from openhls.frontend.boolean import Node
from openhls.frontend.context import is_call_of_stage
from openhls.frontend.draft import Draft
from openhls.frontend.flow import Flow
from openhls.frontend.llvm.module import Instruction
from openhls.frontend.memory import Memory
from openhls.frontend.types import Int, Pointer
from openhls.ir import FALSE, TRUE, Const, Direction, Fifo, Life, Location, Opcode, Operand, Stream
from openhls.lowered import Queue

_INDEX_BITS = 16  # of the number of a stream
_DEPTH = 2  # of a FIFO whose depth the C++ does not say


@dataclass
class StreamUse:
    """How a process uses a stream: its name, and width and direction once they are known. `depth`: as the C++ says."""

    name: str
    variable: str  # its name in the C++
    location: Location
    width: int = 0
    directions: set[Direction] = field(default_factory=set)
    depth: int | None = None


class Streams:
    """Streams by the object and position that they have in LLVM."""

    def __init__(self, draft: Draft, memory: Memory, flow: Flow) -> None:
        self._draft = draft
        self._function = draft.context.function
        self._memory = memory
        self._builder = draft.builder
        self._flow = flow
        self._parameters = {parameter for parameter, _ in self._function.parameters}
        if draft.context.callers:
            self._parameters |= {f"@{name}" for name in self._function.statics}
        self._uses: dict[tuple[str, int], StreamUse] = {}
        self._begun: dict[str, tuple[int, ...]] = {}  # the loops around the place where the life of an object begins
        self._in_regions: set[tuple[str, str]] = set()  # objects and streams between stages of a region, in this life
        self._queues, self._lent = self._find_ends()

    def _find_ends(self) -> tuple[set[str], set[str]]:
        """The process's own streams, by the objects they are in: those that it accesses itself, and those of stages."""
        context = self._draft.context
        accessed: set[str] = set()
        lent: set[str] = set()
        for it in (it for block in self._function.blocks.values() for it in block.instructions):
            if it.opcode in ("load", "store") and it.flag == "volatile":
                ways = context.ways_of(it.operands[-1], it.location)
                accessed |= {way.address.base for way in ways if way.address.offset % STREAM_BYTES != DEPTH_AT}
            elif is_call_of_stage(self._draft.module, it):
                pointers = (each for each, of in zip(it.operands, it.types, strict=True) if isinstance(of, Pointer))
                lent |= {way.address.base for each in pointers for way in context.ways_of(each, it.location)}
                lent |= {f"@{name}" for name in self._draft.module.functions[str(it.flag)].statics}
        return accessed - self._parameters, lent

    def find(self, address: Address) -> tuple[StreamUse, int]:
        """The stream at an address, and the place in it, which says what an access means."""
        which, place = divmod(address.offset, STREAM_BYTES)
        if address.terms:
            raise Unsupported(self._builder.location, "a stream chosen at run time", "unroll the loop over the streams")
        key = (address.base, which)
        if key not in self._uses:
            variables = self._function.variables.get(address.base, [])
            static = self._draft.module.statics.get(address.base.removeprefix("@"))
            declared = variables[0] if variables else None if static is None else static.variable
            wish = address.base if declared is None else declared.name
            is_array = not self._draft.context.callers and self._draft.context.counts.get(address.base, 1) > 1
            numbered = which > 0 or (is_array and address.base in self._parameters)
            reserved = None if numbered else self._draft.reserved.get(address.base)
            use = StreamUse(
                reserved or self._draft.names.fresh(f"{wish}_{which}" if numbered else wish),
                wish,
                self._function.location if declared is None else declared.location,
            )
            use.depth = self._memory.depth([declared] if declared and not variables else variables)
            self._uses[key] = use
        return self._uses[key], place

    def _accessed(self, address: Address) -> tuple[StreamUse, int]:
        """A stream that the process itself reads or writes."""
        use, place = self.find(address)
        if place != DEPTH_AT and address.base not in self._parameters and address.base in self._lent:
            raise Unsupported(
                self._builder.location,
                f"the stream {use.variable} is used outside the stages",
                "let a stage read or write it: a call that is a statement of its own, in the DATAFLOW scope",
            )
        return use, place

    def _spread(self, address: Address, reach: Node) -> list[tuple[Node, Address]]:
        """The streams of an array that an index may choose, and when."""
        if not address.terms:
            return [(reach, address)]
        count = self._draft.context.counts.get(address.base, 0)
        if not count or any(stride % STREAM_BYTES for _, stride in address.terms):
            advice = "give its array a length, or unroll the loop over the streams"
            raise Unsupported(self._builder.location, "a stream chosen at run time", advice)
        first, place = divmod(address.offset, STREAM_BYTES)
        index: Operand = Const(_INDEX_BITS, first % (1 << _INDEX_BITS))
        for term, stride in address.terms:
            value = self._draft.operand(term)
            cut = Opcode.SEXT if value.width < _INDEX_BITS else Opcode.EXTRACT
            value = self._builder.make(cut, _INDEX_BITS, value)
            factor = Const(_INDEX_BITS, stride // STREAM_BYTES % (1 << _INDEX_BITS))
            value = self._builder.make(Opcode.MUL, _INDEX_BITS, value, factor)
            index = self._builder.make(Opcode.ADD, _INDEX_BITS, index, value)
        ways = []
        for which in range(count):
            here = self._builder.make(Opcode.EQ, 1, index, Const(_INDEX_BITS, which))
            node = self._flow.conditions.both(reach, self._flow.condition(here))
            ways.append((node, Address(address.base, which * STREAM_BYTES + place)))
        return ways

    def begin(self, address: Address, reach: Node) -> None:
        """The life of a stream begins: a queue is empty. A static one has begun before the first call of the top."""
        self._begun[address.base] = self._draft.loops
        self._in_regions = {each for each in self._in_regions if each[0] != address.base}
        if address.base in self._queues and not address.base.startswith("@"):
            for node, each in self._spread(address, reach):
                use, _ = self.find(each)
                self._builder.access(Opcode.STORE, use.name, (Const(1, 0), FALSE), 0, self._flow.build(node))

    def read(self, it: Instruction, address: Address, reach: Node) -> Operand:
        """What a volatile load gives: a word, or whether there is one, or room for one."""
        cases = [(node, self._read(it, each, node)) for node, each in self._spread(address, reach)]
        return self._flow.choose(cases, reach, it.name)

    def _read(self, it: Instruction, address: Address, reach: Node) -> Operand:
        use, place = self._accessed(address)
        assert isinstance(it.type, Int)
        predicate = self._flow.build(reach)
        if place in (EMPTY_AT, FULL_AT):
            if place == FULL_AT and address.base in self._queues:
                raise Unsupported(
                    self._builder.location,
                    f"full() or write_nb() of the stream {use.variable}, which one function writes and reads",
                    "write() it: as software it is never full",
                )
            opcode, width = (Opcode.EMPTY if place == EMPTY_AT else Opcode.FULL), 1
            predicate = TRUE if place == EMPTY_AT else predicate  # a look at a stream changes nothing
            use.directions.add(Direction.READ if place == EMPTY_AT else Direction.WRITE)
        else:
            opcode, width = Opcode.READ, place // 64
            use.directions.add(Direction.READ)
            use.width = width
        value = self._builder.access(opcode, use.name, (), width, predicate, it.name)
        return self._builder.make(Opcode.ZEXT, it.type.width, value)

    def write(self, address: Address, value: Operand, reach: Node) -> None:
        """What a volatile store does: append a word, or say how deep the stream is."""
        for node, each in self._spread(address, reach):
            self._write(each, value, node)

    def _write(self, address: Address, value: Operand, reach: Node) -> None:
        use, place = self._accessed(address)
        if place == DEPTH_AT:
            assert isinstance(value, Const)
            use.depth = use.depth or value.bits
            return
        width = (place - WRITE_AT) // 64
        use.directions.add(Direction.WRITE)
        use.width = width
        word = self._builder.make(Opcode.EXTRACT, width, value)
        self._builder.access(Opcode.WRITE, use.name, (word,), 0, self._flow.build(reach))

    def of_parameters(self) -> list[tuple[str, str, int]]:
        """Name, parameter and position of those that the callers connect."""
        return [(use.name, base, which) for (base, which), use in self._uses.items() if base in self._parameters]

    def fifos(self, ends: Mapping[str, set[Direction]], location: Location) -> tuple[Fifo, ...]:
        """Those among the streams of a region that are the process's own. `ends`: what the stages do with them."""
        return tuple(
            self._fifo(base, use, ends[use.name], location)
            for (base, _), use in self._uses.items()
            if base not in self._parameters and use.name in ends
        )

    def _fifo(self, base: str, use: StreamUse, ends: set[Direction], location: Location) -> Fifo:
        if len(ends) < len(Direction):
            missing = "reads" if Direction.READ not in ends else "writes"
            raise Unsupported(
                use.location,
                f"no stage of the region {missing} the stream {use.variable}",
                "let a stage do so, or leave it out",
            )
        if (base, use.name) in self._in_regions:
            raise Unsupported(
                use.location,
                f"the stream {use.variable} is between stages of two dataflow regions",
                "declare a stream in the scope of each region",
            )
        self._in_regions.add((base, use.name))
        return Fifo(use.name, use.width, use.depth or _DEPTH, location, self._life(base, use))

    def _life(self, base: str, use: StreamUse) -> Life:
        """Words that are left in a stream that is declared outside the region are there when it runs again."""
        if base.startswith("@"):
            return Life.PROGRAM
        begun = self._begun.get(base, ())
        if begun == self._draft.loops:
            return Life.REGION
        if not begun:
            return Life.PROCESS
        raise Unsupported(
            use.location,
            f"the stream {use.variable} is declared in a loop around the one that runs the region",
            "declare it in the scope of the region",
        )

    def queues(self) -> list[Queue]:
        """Those that the process itself writes and reads."""
        return [
            Queue(use.name, use.variable, use.width, use.depth, use.location, is_static=base.startswith("@"))
            for (base, _), use in self._uses.items()
            if base in self._queues
        ]

    def ports(self) -> tuple[Stream, ...]:
        """Raises Unsupported for a stream that is both read and written."""
        return tuple(self._port(use) for (base, _), use in self._uses.items() if base in self._parameters)

    def _port(self, use: StreamUse) -> Stream:
        if len(use.directions) != 1:
            raise Unsupported(
                self._function.location,
                f"{self._draft.name} reads and writes the stream {use.variable}",
                "let one stage write it and another one read it",
            )
        return Stream(use.name, use.width, next(iter(use.directions)), self._function.location)
