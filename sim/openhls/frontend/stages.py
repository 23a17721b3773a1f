# SPDX-License-Identifier: Apache-2.0
"""The dataflow regions of a process: calls of stages, between two marks, become one region."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from openhls.errors import Unsupported
from openhls.frontend.addresses import STREAM_BYTES, Address, Path
from openhls.frontend.boolean import Node
from openhls.frontend.context import place_of
from openhls.frontend.draft import Draft
from openhls.frontend.llvm.module import Global, Instruction
from openhls.frontend.llvm.module import Operand as LlvmOperand
from openhls.frontend.memory import Memory
from openhls.frontend.pointers import Pointers
from openhls.frontend.streams import Streams
from openhls.frontend.types import Pointer
from openhls.ir import (
    Array,
    Call,
    Dataflow,
    Direction,
    Fifo,
    Life,
    Location,
    Opcode,
    Operand,
    Process,
    Stream,
    Value,
    operations_of,
)


@dataclass
class Interface:
    """What the callers of a process must connect: leaves by parameter, streams by parameter and position."""

    process: Process
    scalars: list[tuple[str, str, Path | None]]  # name, parameter, leaf (None: the parameter itself)
    outputs: list[tuple[str, str, Path | None]]
    streams: list[tuple[str, str, int]]  # name, parameter, which stream of an array of streams
    arrays: list[tuple[str, str, Path]]
    memories: list[tuple[str, str]]  # stream of a memory port, parameter
    queues: tuple[Location, ...]  # where the streams are declared that the process writes and reads itself

    def port(self, name: str) -> Stream:
        return next(port for port in self.process.streams if port.name == name)

    def width(self, output: str) -> int:
        return next(operand.width for name, operand in self.process.outputs if name == output)


@dataclass
class Opened:
    """A region whose end has not come yet. `written` are the scalars that its stages set, `users` the numbers of the
    stages that have an array or a pointer; `calls` come with the leaves that their results are for."""

    reach: Node
    instruction: Instruction
    calls: list[tuple[Call, list[tuple[str, Path, Value]]]] = field(default_factory=list)
    written: set[tuple[str, Path]] = field(default_factory=set)
    users: dict[str, list[int]] = field(default_factory=dict)
    inlined: set[int] = field(default_factory=set)  # stages with INLINE around functions that streams connect

    def use(self, name: str) -> bool:
        """Notes that the next stage has an array or a pointer; False if it has it already."""
        known = self.users.setdefault(name, [])
        if len(self.calls) in known:
            return False
        known.append(len(self.calls))
        return True


def in_order(opened: Opened, lent: Collection[str]) -> tuple[Call, ...]:
    """The calls of a region: those that share an array or a pointer run one after the other, in the order of the C++.
    `lent` are the streams of pointers.

    Calls that streams connect start together, once all that one of them waits for has ended. Raises Unsupported where
    one of them would wait for another.
    """
    calls = [call for call, _ in opened.calls]
    group = list(range(len(calls)))  # the first of the calls that streams connect
    ends: dict[str, int] = {}
    for number, call in enumerate(calls):
        for name in (name for _, name in call.streams if name not in lent):
            before = group[ends.setdefault(name, number)]
            group = [min(before, group[number]) if each in (before, group[number]) else each for each in group]
    waits: dict[int, set[int]] = {each: set() for each in group}
    for name, users in opened.users.items():
        for first, second in pairwise(users):
            if _reaches(waits, group[first], group[second]):
                raise Unsupported(
                    calls[second].location,
                    f"{name} is passed to two stages, {calls[first].process} and {calls[second].process}, that would "
                    "wait for one another",
                    "send its elements through a stream, too, or let the stages share nothing but streams",
                )
            waits[group[second]].add(group[first])
    order: list[int] = []
    while len(order) < len(calls):
        known = {group[number] for number in range(len(calls)) if number not in order}  # groups that are to come
        order += [n for n in range(len(calls)) if n not in order and not waits[group[n]] & known]
    ending = [(at, other) for at, other in enumerate(order) if calls[other].task is None]
    return tuple(
        replace(calls[n], after=tuple(at for at, other in ending if group[other] in waits[group[n]]))
        if calls[n].task is not Life.PROGRAM
        else calls[n]
        for n in order
    )


def check_tasks(calls: Sequence[Call], fifos: Sequence[Fifo]) -> None:
    """Raises Unsupported where a task and the streams that it is connected to do not live equally long."""
    lives = {fifo.name: fifo for fifo in fifos}
    for call in (call for call in calls if call.task is not None):
        for name in (name for _, name in call.streams):
            fifo = lives.get(name)
            life = Life.PROGRAM if fifo is None else fifo.life  # an argument of the top
            if life is not call.task:
                raise Unsupported(
                    call.location,
                    f"the stream {name} and the task {call.process.removesuffix('_task')} do not live equally long",
                    "declare both with hls_thread_local, or neither",
                )


def meeting_streams(calls: Sequence[Call], number: int) -> tuple[str, str] | None:
    """Two streams of a stage whose other ends are connected without it, if there are any."""
    names = [{name for _, name in call.streams} for call in calls]
    seen: dict[int, str] = {}  # stages that streams connect, and by which stream the stage `number` reaches them
    for first in sorted(names[number]):
        pending = [at for at in range(len(calls)) if at != number and first in names[at]]
        while pending:
            at = pending.pop()
            if seen.setdefault(at, first) != first:
                return seen[at], first
            others = names[at] - names[number]
            pending += [n for n in range(len(calls)) if n not in seen and n != number and names[n] & others]
    return None


def _reaches(waits: dict[int, set[int]], start: int, end: int) -> bool:
    """True if `start` is `end` or waits for it."""
    return start == end or any(_reaches(waits, each, end) for each in waits[start])


@dataclass
class Stages:
    """`interfaces` are those of the stages, by the id of the calling instruction.

    `lent` are the streams of memory ports that stages use, `shared` the arrays.
    """

    draft: Draft
    interfaces: dict[int, Interface]
    memory: Memory
    streams: Streams
    pointers: Pointers
    lent: dict[str, Stream] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    _open: Opened | None = None

    def callees(self) -> dict[str, Process]:
        return {each.process.name: each.process for each in self.interfaces.values()}

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def check(self, address: Address) -> None:
        """Raises Unsupported for a scalar that a stage of the open region sets."""
        if self._open is not None and any(base == address.base for base, _ in self._open.written):
            raise Unsupported(
                self.draft.builder.location,
                f"a stage needs the scalar {address.base} of another stage",
                "send it through a stream",
            )

    # ---- a region ----

    def begin(self, it: Instruction, reach: Node) -> None:
        if self._open is not None:
            raise Unsupported(self.draft.builder.location, "two dataflow regions in one another", "make one a function")
        self._open = Opened(reach, it)

    def end(self, reach: Node) -> Opened:
        opened = self._open
        if opened is None or opened.reach != reach:
            raise Unsupported(
                self.draft.builder.location,
                "a dataflow region that is left half-way",
                "return only after its last stage",
            )
        self._open = None
        return opened

    def region(self, opened: Opened, enter: Operand) -> Dataflow:
        """The region. What its stages have set is stored in the block that follows."""
        self._check_inlined(opened)
        calls = in_order(opened, self.lent.keys())
        ends: dict[str, set[Direction]] = {}
        for call in calls:
            ports = {stream.name: stream.direction for stream in self.callees()[call.process].streams}
            for port, name in call.streams:
                ends.setdefault(name, set()).add(ports[port])
        fifos = self.streams.fifos(ends, self.draft.builder.location)
        check_tasks(calls, fifos)
        label = self.draft.names.fresh("stages")
        for _, results in opened.calls:
            for base, leaf, value in results:
                self.memory.store_leaf(base, leaf, value, enter)
        return Dataflow(label, fifos, calls, enter, place_of(self.draft.context, opened.instruction))

    def _check_inlined(self, opened: Opened) -> None:
        """The functions in a stage run one after the other. With INLINE they ask to be stages themselves: this would be
        faster, and a region that has one stage instead may wait for ever, where two of its streams meet again."""
        calls = [call for call, _ in opened.calls]
        for number in sorted(opened.inlined):
            name = calls[number].process
            if (meeting := meeting_streams(calls, number)) is not None:
                raise Unsupported(
                    calls[number].location,
                    f"the functions in {name}, which has INLINE, would run one after the other and might wait for "
                    f"ever: its streams {' and '.join(meeting)} meet in other stages",
                    f"call the functions of {name} in the region itself",
                )
            self.draft.notes.warn(
                calls[number].location,
                f"INLINE has no effect on the stage {name}: the functions in it run one after the other; call them in "
                "the region itself to have them run at the same time",
            )

    # ---- a stage ----

    def call(self, it: Instruction, reach: Node) -> None:
        """Adds a stage to the open region."""
        interface = self.interfaces[id(it)]
        if self._open is None or self._open.reach != reach:
            raise Unsupported(
                self.draft.builder.location,
                f"a call of {interface.process.name} that is not a stage of the dataflow region on every run",
                "call all stages unconditionally, at the top level of the function that has the DATAFLOW pragma",
            )
        parameters = self.draft.module.functions[str(it.flag)].parameters
        given = {name: operand for (name, _), operand in zip(parameters, it.operands, strict=True)}
        given |= {f"@{name}": Global(name) for name in self.draft.module.functions[str(it.flag)].statics}
        lent = {name for name, of in parameters if isinstance(of, Pointer)}
        scalars = tuple(
            (name, self._scalar(interface, parameter, leaf, given[parameter], parameter in lent))
            for name, parameter, leaf in interface.scalars
        )
        bound, results = self._results(it, interface, given, self._open)
        streams = [(name, self._stream(interface, name, given[at], which)) for name, at, which in interface.streams]
        streams += [(name, self._memory_stream(interface, name, given[at])) for name, at in interface.memories]
        arrays = [(name, self._array(interface, given[parameter], leaf)) for name, parameter, leaf in interface.arrays]
        location = self.draft.builder.location
        if interface.queues and self._has_inline(self.draft.module.functions[str(it.flag)].location):
            self._open.inlined.add(len(self._open.calls))
        task = self.draft.module.functions[str(it.flag)].task
        call = Call(interface.process.name, scalars, tuple(streams), tuple(arrays), tuple(bound), location, task=task)
        if task is not None:
            self._check_task(call, interface.process)
        self._open.calls.append((call, results))

    def _check_task(self, call: Call, process: Process) -> None:
        """Refuses what a process cannot have that runs on when its callers have ended."""
        place, name = self.draft.builder.location, process.name.removesuffix("_task")
        if call.scalars or call.arrays or call.results or any(stream in self.lent for _, stream in call.streams):
            raise Unsupported(
                place, f"the task {name} with other arguments than streams, or with static variables", "send it words"
            )
        if any(operation.opcode in (Opcode.EMPTY, Opcode.FULL) for operation in operations_of(process.body)):
            raise Unsupported(
                place, f"the task {name} looks whether a stream has words, or room", "let it read and write, and wait"
            )
        if call.task is Life.PROGRAM and self.draft.context.callers:
            raise Unsupported(place, f"the task {name} in a function that the top calls", "declare it in the top")
        if self.draft.loops:
            raise Unsupported(place, f"the task {name} in a loop", "declare it outside, or unroll the loop")

    def _has_inline(self, function: Location) -> bool:
        return any(
            note.pragma.location.file == function.file and note.first_line <= function.line <= note.last_line
            for note in self.draft.notes.inlined
        )

    def _scalar(
        self, interface: Interface, parameter: str, leaf: Path | None, given: LlvmOperand, is_pointer: bool
    ) -> Operand:
        if leaf is None:
            return self._lend(interface, parameter, self._address(given)) if is_pointer else self.draft.operand(given)
        base = self._address(given).base
        if self._open is not None and (base, leaf) in self._open.written:
            self.check(Address(base))
        self._declare(base, leaf)
        return self.memory.load_leaf(base, leaf)

    def _results(
        self, it: Instruction, interface: Interface, given: dict[str, LlvmOperand], opened: Opened
    ) -> tuple[list[tuple[str, Value]], list[tuple[str, Path, Value]]]:
        """New values for the outputs, and the leaves that they are for."""
        bound: list[tuple[str, Value]] = []
        results: list[tuple[str, Path, Value]] = []
        names = self._names(interface, given)
        for name, parameter, leaf in interface.outputs:
            value = Value(self.draft.names.fresh(f"{interface.process.name}_{name}"), interface.width(name))
            bound.append((name, value))
            if leaf is None:
                self.draft.values[it.name] = value
                continue
            base = self._address(given[parameter]).base
            if names[base, leaf] > 1:
                raise Unsupported(
                    self.draft.builder.location,
                    f"the variable {self.draft.context.objects[base].name} is passed to a stage that sets it twice",
                    "pass it once; a stage that names a static variable has it already",
                )
            self._declare(base, leaf)
            opened.written.add((base, leaf))
            results.append((base, leaf, value))
        return bound, results

    def _names(self, interface: Interface, given: dict[str, LlvmOperand]) -> Counter[tuple[str, Path]]:
        """How many parameters of a stage lead to each scalar."""
        leaves = {(parameter, leaf) for _, parameter, leaf in (*interface.scalars, *interface.outputs)}
        return Counter((self._address(given[at]).base, leaf) for at, leaf in leaves if leaf is not None)

    def _stream(self, interface: Interface, name: str, given: LlvmOperand, which: int) -> str:
        use, _ = self.streams.find(self._address(given).moved(which * STREAM_BYTES))
        port = interface.port(name)
        use.width = port.width
        use.directions.add(port.direction)
        return use.name

    def _memory_stream(self, interface: Interface, name: str, given: LlvmOperand) -> str:
        base = self._address(given).base
        lent = f"{self.draft.reserved[base]}_{name.rpartition('_')[2]}"
        port = interface.port(name)
        if self.lent.setdefault(lent, replace(port, name=lent)).width != port.width:
            raise Unsupported(
                self.draft.builder.location,
                f"stages take elements of different sizes from {base}",
                "access whole elements of one type",
            )
        return lent

    def _array(self, interface: Interface, given: LlvmOperand, leaf: Path) -> str:
        assert self._open is not None
        base = self._address(given).base
        array = self._declare(base, leaf)
        if array.initial is None and not self._open.use(array.name):
            raise Unsupported(
                self.draft.builder.location,
                f"the array {self.draft.context.objects[base].name} is passed to a stage of a dataflow region twice",
                "pass it once; a stage that names a static array has it already",
            )
        self.shared.add(array.name)
        return array.name

    def _lend(self, interface: Interface, parameter: str, address: Address) -> Operand:
        """The address that a stage gets; it has the pointer for itself."""
        assert self._open is not None
        if not self._open.use(self.draft.reserved[address.base]):
            raise Unsupported(
                self.draft.builder.location,
                f"the pointer {address.base} is passed to a stage of a dataflow region twice",
                "pass it once, or make it two arguments of the top",
            )
        return self.pointers.place(address)

    def _address(self, given: LlvmOperand) -> Address:
        return self.draft.context.address(given, self.draft.builder.location)

    def _declare(self, base: str, leaf: Path) -> Array:
        """The array of a leaf that a stage uses."""
        return self.memory.declare(base, self.draft.context.objects[base], leaf)
