# SPDX-License-Identifier: Apache-2.0
"""Checks that a program keeps the rules of openhls.ir. A violation is a fault of openhls, never of the C++."""

from __future__ import annotations

from collections.abc import Mapping

from openhls.errors import OpenHlsError
from openhls.ir import (
    ADDRESS_BITS,
    ARRAY_ACCESSES,
    BINARY,
    COMPARISONS,
    COUNTS,
    ELEMENT_BITS,
    PREDICATED,
    REQUEST_WIDTH,
    STREAM_ACCESSES,
    TRUE,
    WITHOUT_RESULT,
    Array,
    Block,
    Call,
    Const,
    Dataflow,
    Direction,
    Life,
    Loop,
    MemoryPort,
    Opcode,
    Operand,
    Operation,
    Process,
    Program,
    Region,
    Value,
)


class InvalidProgram(OpenHlsError):
    """A rule of the IR is broken."""


def verify(program: Program) -> None:
    """Raises InvalidProgram."""
    seen: dict[str, Process] = {}
    for name, process in program.processes.items():
        verify_process(process, seen)
        seen[name] = process
    if not seen or list(seen)[-1] != program.top:
        raise InvalidProgram(f"the top {program.top} is not the last process")
    names: set[str] = set()
    for port in program.memories:
        if port.name in names:
            raise InvalidProgram(f"{port.name} is two memory ports")
        names.add(port.name)
        _check_port(port, program.processes[program.top])
    for stream in program.processes[program.top].streams:
        channels = program.channels.get(stream.name, (("data", stream.width),))
        if sum(width for _, width in channels) != stream.width:
            raise InvalidProgram(f"{stream.name}: its channels do not have {stream.width} bits")


def verify_process(process: Process, callees: Mapping[str, Process], pointers: frozenset[str] = frozenset()) -> None:
    """Raises InvalidProgram. `pointers`: names of memory that is still accessed as if it were an array."""
    _ProcessCheck(process, callees, pointers).run()


def _check_port(port: MemoryPort, top: Process) -> None:
    """Its address is a scalar of the top, and its streams are as openhls.ir.MemoryPort says."""
    if Value(port.name, ADDRESS_BITS) not in top.scalars:
        raise InvalidProgram(f"{port.name}: no address of {ADDRESS_BITS} bits among the scalars of {top.name}")
    if not port.reads and not port.writes:
        raise InvalidProgram(f"{port.name}: neither read nor written")
    if port.width not in ELEMENT_BITS:
        raise InvalidProgram(f"{port.name}: elements of {port.width} bits")
    if min(port.read_burst, port.write_burst, port.read_outstanding, port.write_outstanding) < 1:
        raise InvalidProgram(f"{port.name}: a limit below 1")
    expected = {
        "ar": (port.reads, REQUEST_WIDTH, Direction.WRITE),
        "r": (port.reads, port.width, Direction.READ),
        "aw": (port.writes, REQUEST_WIDTH, Direction.WRITE),
        "w": (port.writes, port.width, Direction.WRITE),
        "b": (port.writes, 1, Direction.READ),
    }
    streams = {stream.name: stream for stream in top.streams}
    for kind, (exists, width, direction) in expected.items():
        stream = streams.get(f"{port.name}_{kind}")
        if exists != (stream is not None):
            raise InvalidProgram(f"{port.name}_{kind} is {'missing' if exists else 'not part of the port'}")
        if stream is not None and (stream.width, stream.direction) != (width, direction):
            raise InvalidProgram(f"{stream.name} is not a stream of {width} bits {direction.value}")


class _ProcessCheck:
    def __init__(self, process: Process, callees: Mapping[str, Process], pointers: frozenset[str]) -> None:
        self._process = process
        self._callees = callees
        self._pointers = pointers
        self._streams = {stream.name: stream for stream in process.streams}
        self._arrays = {array.name: array for array in process.arrays}
        self._names: set[str] = {*self._streams, *self._arrays}

    def run(self) -> None:
        """Checks names, visibility, widths, directions and targets."""
        visible: set[Value] = set()
        for value in self._process.scalars:
            self._define(value, visible)
        self._regions(self._process.body, visible)
        for _, operand in self._process.outputs:
            self._use(operand, visible, "an output")

    def _fail(self, problem: str, where: object = "") -> None:
        place = where.location if isinstance(where, Operation) else self._process.location
        what = (
            f" {where.opcode.value} {where.target}".rstrip() if isinstance(where, Operation) else f" {where}".rstrip()
        )
        raise InvalidProgram(f"{place}: {self._process.name}: {problem}{what}; this is a fault of openhls")

    def _define(self, value: Value, visible: set[Value]) -> None:
        if value.name in self._names or value.width < 1:
            self._fail(f"{value} has no width or is defined twice")
        self._names.add(value.name)
        visible.add(value)

    def _use(self, operand: Operand, visible: set[Value], where: object, width: int | None = None) -> None:
        if isinstance(operand, Value) and operand not in visible:
            self._fail(f"{operand} is not visible in", where)
        if isinstance(operand, Const) and not 0 <= operand.bits < 1 << operand.width:
            self._fail(f"the constant {operand} does not fit in", where)
        if width is not None and operand.width != width:
            self._fail(f"{operand} is not {width} bits wide in", where)

    def _regions(self, regions: tuple[Region, ...], visible: set[Value]) -> None:
        for region in regions:
            if isinstance(region, Block):
                for operation in region.operations:
                    self._operation(operation, visible)
            elif isinstance(region, Loop):
                self._loop(region, visible)
            else:
                self._dataflow(region, visible)

    def _loop(self, loop: Loop, visible: set[Value]) -> None:
        self._use(loop.enter, visible, loop.label, 1)
        inside = set(visible)
        for each in loop.carried:
            self._use(each.initial, visible, loop.label, each.value.width)
            self._define(each.value, inside)
        if not loop.body:
            self._fail("no body in", loop.label)
        self._regions(loop.body, inside)
        self._use(loop.again, inside, loop.label, 1)
        for each in loop.carried:
            self._use(each.following, inside, loop.label, each.value.width)
        for result in loop.results:
            self._use(result.source, inside, loop.label, result.value.width)
            self._define(result.value, visible)

    def _operation(self, operation: Operation, visible: set[Value]) -> None:
        for operand in operation.operands:
            self._use(operand, visible, operation)
        self._use(operation.predicate, visible, operation, 1)
        if operation.opcode not in PREDICATED and operation.predicate != TRUE:
            self._fail("a predicate on", operation)
        if (operation.result is None) != (operation.opcode in WITHOUT_RESULT):
            self._fail("a wrong result in", operation)
        if operation.opcode in STREAM_ACCESSES:
            self._stream_access(operation)
        elif operation.opcode in ARRAY_ACCESSES:
            self._array_access(operation)
        else:
            self._widths(operation)
        if operation.result is not None:
            self._define(operation.result, visible)

    def _stream_access(self, operation: Operation) -> None:
        stream = self._streams.get(operation.target)
        if stream is None:
            self._fail("an unknown stream in", operation)
            return
        reads = operation.opcode in (Opcode.READ, Opcode.EMPTY)
        if reads != (stream.direction is Direction.READ):
            self._fail("the wrong direction in", operation)
        widths = [operand.width for operand in operation.operands]
        if widths != ([stream.width] if operation.opcode is Opcode.WRITE else []):
            self._fail("a wrong width in", operation)
        expected = stream.width if operation.opcode is Opcode.READ else 1
        if operation.result is not None and operation.result.width != expected:
            self._fail("a wrong width in", operation)

    def _array_access(self, operation: Operation) -> None:
        array = self._arrays.get(operation.target)
        if operation.target in self._pointers:
            return
        if array is None:
            self._fail("an unknown array in", operation)
            return
        if operation.opcode is Opcode.STORE:
            if array.initial is not None or operation.operands[1].width != array.width:
                self._fail("a store that does not fit in", operation)
        elif operation.result is None or operation.result.width != array.width:
            self._fail("a wrong width in", operation)

    def _widths(self, operation: Operation) -> None:
        assert operation.result is not None
        width, opcode = operation.result.width, operation.opcode
        widths = [operand.width for operand in operation.operands]
        if opcode in BINARY:
            good = widths == [width, width]
        elif opcode in COMPARISONS:
            good = width == 1 and len(widths) == 2 and widths[0] == widths[1]
        elif opcode is Opcode.SELECT:
            good = widths == [1, width, width]
        elif opcode in (Opcode.ZEXT, Opcode.SEXT):
            good = len(widths) == 1 and widths[0] < width
        elif opcode is Opcode.EXTRACT:
            good = len(widths) == 1 and operation.low >= 0 and operation.low + width <= widths[0]
        elif opcode is Opcode.CONCAT:
            good = sum(widths) == width  # narrowing leaves one operand where the others went
        else:
            good = opcode in COUNTS and widths == [width]
        if not good:
            self._fail("a wrong width in", operation)

    def _dataflow(self, region: Dataflow, visible: set[Value]) -> None:
        self._use(region.enter, visible, region.label, 1)
        ends: dict[tuple[str, Direction], str] = {}
        local = {fifo.name: fifo.width for fifo in region.fifos}
        if self._names & set(local):
            self._fail("a FIFO with a name in use in", region.label)
        users: dict[str, int] = {}
        defined: list[Value] = []
        earlier: list[set[int]] = []  # calls that have ended when a call starts
        for number, call in enumerate(region.calls):
            if call.task is not None and (call.scalars or call.arrays or call.results):
                self._fail("a task with more than streams in", region.label)
            if call.task is Life.PROGRAM and call.after:
                self._fail("a task of the program that waits in", region.label)
            if any(region.calls[before].task is not None for before in call.after if before < number):
                self._fail("a call that is after a task in", region.label)
            if any(not 0 <= before < number for before in call.after):
                self._fail("a call that is after itself or a later one in", region.label)
            earlier.append({*call.after}.union(*(earlier[before] for before in call.after)))
            self._call(call, visible, local, ends)
            shared = [name for _, name in call.arrays if self._arrays[name].initial is None]
            for name in dict.fromkeys((*shared, *(name for _, name in call.streams if name not in local))):
                if name in users and users[name] not in earlier[number]:
                    self._fail(f"two users of {name} in", region.label)
                users[name] = number
            defined += [value for _, value in call.results]
        for fifo in region.fifos:
            for direction in Direction:
                if (fifo.name, direction) not in ends:
                    self._fail(f"nothing at the {direction.value} end of {fifo.name} in", region.label)
        for value in defined:
            self._define(value, visible)

    def _call(
        self, call: Call, visible: set[Value], fifos: dict[str, int], ends: dict[tuple[str, Direction], str]
    ) -> None:
        callee = self._callees.get(call.process)
        if callee is None:
            self._fail(f"{call.process} is not defined before")
            return
        if [name for name, _ in call.scalars] != [value.name for value in callee.scalars]:
            self._fail("wrong scalars in the call of", call.process)
        for (_, operand), value in zip(call.scalars, callee.scalars, strict=True):
            self._use(operand, visible, call.process, value.width)
        if [name for name, _ in call.streams] != [stream.name for stream in callee.streams]:
            self._fail("wrong streams in the call of", call.process)
        for (_, name), stream in zip(call.streams, callee.streams, strict=True):
            own = self._streams.get(name)
            width = fifos.get(name, own.width if own is not None else 0)
            if width != stream.width or (own is not None and own.direction is not stream.direction):
                self._fail(f"the stream {name} does not fit in the call of", call.process)
            end = call.process + repr(call.location)
            if ends.setdefault((name, stream.direction), end) != end and name in fifos:
                self._fail(f"two processes at one end of {name}")
        external = {array.name: array for array in callee.arrays if array.external}
        if {name for name, _ in call.arrays} != set(external):
            self._fail("wrong arrays in the call of", call.process)
        for name, given in call.arrays:
            self._same_array(external[name], given, call)

    def _same_array(self, array: Array, given: str, call: Call) -> None:
        own = self._arrays.get(given)
        if own is None or (own.width, own.length) != (array.width, array.length):
            self._fail(f"the array {given} does not fit in the call of", call.process)
