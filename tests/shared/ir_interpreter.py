# SPDX-License-Identifier: Apache-2.0
"""Runs a program as openhls.ir defines it, one operation after the other, without any notion of time.

What the IR leaves open (the result of an access whose predicate is 0, results of a region that was not entered, new
arrays) is random here, so that a program that depends on it fails its tests.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ir_memory import Memory, attach

from openhls.errors import OpenHlsError
from openhls.evaluate import evaluate
from openhls.ir import (
    ArrayPort,
    Block,
    Const,
    Dataflow,
    Direction,
    Life,
    Loop,
    Opcode,
    Operand,
    Operation,
    Process,
    Program,
    Region,
    Value,
    fifos_of,
)

Kept = dict[str, list[int]]
POLLING = ""
_MOST_POLLS = 200_000


class Stuck(OpenHlsError):
    """No process can go on; the text names the streams they wait for."""


class OutOfRange(OpenHlsError):
    """An index beyond its array, under a true predicate."""


@dataclass
class Outcome:
    """Outputs by name, words of the output streams, the words that were left in the input streams, and what the
    buffers of pointers hold."""

    outputs: dict[str, int]
    streams: dict[str, list[int]]
    unread: dict[str, list[int]]
    operations: int
    buffers: dict[str, bytes]


@dataclass
class _Channel:
    words: deque[int] = field(default_factory=deque)
    depth: int | None = None
    has_word: bool = False  # the reader was told so
    has_room: bool = False  # the writer was told so
    memory: Memory | None = None  # at its other end

    def full(self) -> bool:
        return self.depth is not None and len(self.words) >= self.depth


class _Machine:
    """State shared by all processes of a run."""

    def __init__(self, program: Program, seed: int) -> None:
        self.program = program
        self.random = random.Random(seed)
        self.operations = 0

    def anything(self, width: int) -> int:
        return self.random.getrandbits(width)


class _Run:
    """One activation of a process. `steps` yields the name of a stream each time it has to wait, or POLLING."""

    def __init__(
        self,
        machine: _Machine,
        process: Process,
        scalars: Mapping[str, int],
        channels: dict[str, _Channel],
        arrays: dict[str, list[int]],
    ) -> None:
        self._machine = machine
        self._process = process
        self._channels = channels
        self._values: dict[str, int] = {value.name: scalars[value.name] for value in process.scalars}
        self._arrays = dict(arrays)
        for array in process.arrays:
            if array.initial is not None:
                self._arrays[array.name] = list(array.initial)
            elif not array.external:
                self._arrays[array.name] = [machine.anything(array.width) for _ in range(array.length)]

    def steps(self) -> Iterator[str]:
        yield from self._regions(self._process.body)

    def outputs(self) -> dict[str, int]:
        return {name: self._get(operand) for name, operand in self._process.outputs}

    def _get(self, operand: Operand) -> int:
        return operand.bits if isinstance(operand, Const) else self._values[operand.name]

    def _set(self, value: Value, bits: int) -> None:
        self._values[value.name] = bits

    def _regions(self, regions: tuple[Region, ...]) -> Iterator[str]:
        for region in regions:
            if isinstance(region, Block):
                for operation in region.operations:
                    yield from self._operation(operation)
            elif isinstance(region, Loop):
                yield from self._loop(region)
            else:
                yield from self._dataflow(region)

    def _loop(self, loop: Loop) -> Iterator[str]:
        if not self._get(loop.enter):
            for result in loop.results:
                self._set(result.value, self._machine.anything(result.value.width))
            return
        state = [self._get(each.initial) for each in loop.carried]
        while True:
            for each, bits in zip(loop.carried, state, strict=True):
                self._set(each.value, bits)
            yield from self._regions(loop.body)
            if not self._get(loop.again):
                break
            state = [self._get(each.following) for each in loop.carried]
        for result, bits in [(result, self._get(result.source)) for result in loop.results]:
            self._set(result.value, bits)

    def _operation(self, operation: Operation) -> Iterator[str]:
        self._machine.operations += 1
        result = operation.result
        if operation.target:
            if self._get(operation.predicate):
                yield from self._access(operation)
            elif result is not None:
                self._set(result, self._machine.anything(result.width))
        elif result is not None:
            bits = [self._get(operand) for operand in operation.operands]
            widths = [operand.width for operand in operation.operands]
            self._set(result, evaluate(operation.opcode, result.width, bits, widths, operation.low))

    def _access(self, operation: Operation) -> Iterator[str]:
        operands = [self._get(operand) for operand in operation.operands]
        if operation.opcode in (Opcode.LOAD, Opcode.STORE):
            array = self._arrays[operation.target]
            if operands[0] >= len(array):
                raise OutOfRange(
                    f"{operation.location}: index {operands[0]} of {operation.target} ({len(array)} elements)"
                )
            if operation.opcode is Opcode.STORE:
                array[operands[0]] = operands[1]
                return
            bits = array[operands[0]]
        else:
            channel = self._channels[operation.target]
            if operation.opcode is Opcode.WRITE:
                while channel.full():
                    yield operation.target
                channel.words.append(operands[0])
                channel.has_room = False
                if channel.memory is not None and self._machine.random.randrange(2):
                    channel.memory.serve()
                return
            if operation.opcode is Opcode.READ:
                while not channel.words:
                    if channel.memory is None or not self._progress_of(channel.memory, operation.target):
                        yield operation.target
                bits = channel.words.popleft()
                channel.has_word = False
            else:
                bits = self._poll(operation.opcode, channel)
                if bits:
                    yield POLLING
        assert operation.result is not None
        self._set(operation.result, bits)

    @staticmethod
    def _progress_of(memory: Memory, stream: str) -> bool:
        """Memory does as little as what is waited for needs; false if it cannot go on."""
        return memory.read() if stream.endswith("_r") else memory.write()

    def _poll(self, opcode: Opcode, channel: _Channel) -> int:
        """EMPTY or FULL: at times 1 although it could be 0, for words take time; once it is 0 it stays 0."""
        late = not self._machine.random.randrange(4)
        if opcode is Opcode.EMPTY:
            channel.has_word |= bool(channel.words) and not late
            return int(not channel.has_word)
        channel.has_room |= not channel.full() and not late
        return int(not channel.has_room)

    def _dataflow(self, region: Dataflow) -> Iterator[str]:
        values = [value for call in region.calls for _, value in call.results]
        if not self._get(region.enter):
            for value in values:
                self._set(value, self._machine.anything(value.width))
            return
        for fifo in region.fifos:
            if fifo.life is Life.REGION or fifo.name not in self._channels:
                self._channels[fifo.name] = _Channel(depth=fifo.depth)
        runs = []
        for call in region.calls:
            scalars = {name: self._get(operand) for name, operand in call.scalars}
            channels = {name: self._channels[given] for name, given in call.streams}
            arrays = {name: self._arrays[given] for name, given in call.arrays}
            runs.append(_Run(self._machine, self._machine.program.processes[call.process], scalars, channels, arrays))
        active = {index: run.steps() for index, run in enumerate(runs)}
        while active:
            before = self._progress()
            waiting = {}
            for index, steps in list(active.items()):
                if active.keys() & region.calls[index].after:
                    continue
                stream = next(steps, None)
                if stream is None:
                    del active[index]
                else:
                    waiting[region.calls[index].process] = stream
            if active and self._progress() == before:
                yield ", ".join(f"{process} at {stream}" for process, stream in waiting.items())
            elif POLLING in waiting.values():
                yield POLLING
        for call, run in zip(region.calls, runs, strict=True):
            found = run.outputs()
            for name, value in call.results:
                self._set(value, found[name])

    def _progress(self) -> int:
        return self._machine.operations


def interpret(
    program: Program,
    scalars: Mapping[str, int],
    streams: Mapping[str, Sequence[int]],
    seed: int = 1,
    buffers: Mapping[str, bytes] | None = None,
    kept: Kept | None = None,
) -> Outcome:
    """Runs the top once. `streams` holds all words of the input streams; output streams take any number. `buffers` are
    what pointers and array arguments lead to; memory does what it is asked for at once, or as late as it can. `kept`
    is what the program keeps from one run to the next, as after a reset if it is left out; it is changed.

    Raises Stuck if the program waits for ever, OutOfRange for an index beyond an array, MemoryFault for one beyond a
    buffer.
    """
    machine = _Machine(program, seed)
    top = program.processes[program.top]
    channels = {stream.name: _Channel(deque(streams.get(stream.name, ()))) for stream in top.streams}
    memories = attach(program.memories, buffers or {}, {name: channel.words for name, channel in channels.items()})
    for name, memory in memories.items():
        channels[name].memory = memory
    pointers = {memory.port.name: memory for memory in memories.values()}
    given = {**scalars, **{name: memory.address for name, memory in pointers.items()}}
    kept = initial_state(program) if kept is None else kept
    given |= {state.scalar: kept[state.name][0] for state in program.states if state.scalar}
    contents = {name: bytes(buffers[name]) for name in {port.argument for port in program.ports} if buffers}
    arrays = {state.name: kept[state.name] for state in program.states if state.is_array}
    arrays |= {port.array: _elements(program, port, contents[port.argument]) for port in program.ports}
    fifos = [fifo for fifo in fifos_of(top.body) if fifo.life is Life.PROGRAM]
    channels |= {fifo.name: _Channel(deque(kept.get(fifo.name, ())), fifo.depth) for fifo in fifos}
    run = _Run(machine, top, given, channels, arrays)
    for polls, waiting in enumerate(run.steps()):
        if waiting != POLLING or polls > _MOST_POLLS:
            raise Stuck(f"{top.name} waits for ever: {waiting or 'it polls'}")
    for memory in pointers.values():
        memory.check_done()
    plain = [stream for stream in top.streams if stream.name not in memories]
    written = {s.name: list(channels[s.name].words) for s in plain if s.direction is Direction.WRITE}
    unread = {s.name: list(channels[s.name].words) for s in plain if s.direction is Direction.READ}
    kept |= {fifo.name: list(channels[fifo.name].words) for fifo in fifos}
    outputs = run.outputs()
    for state in (state for state in program.states if state.name in outputs):
        kept[state.name] = [outputs.pop(state.name)]
    for port in program.ports:
        contents[port.argument] = _with_elements(program, port, contents[port.argument], arrays[port.array])
    contents |= {name: bytes(memory.contents) for name, memory in pointers.items()}
    return Outcome(outputs, written, unread, machine.operations, contents)


def initial_state(program: Program) -> Kept:
    """What a program keeps, as it is after a reset."""
    return {state.name: list(state.initial) for state in program.states}


def _width(program: Program, port: ArrayPort) -> int:
    return next(array.width for array in program.processes[program.top].arrays if array.name == port.array)


def _elements(program: Program, port: ArrayPort, contents: bytes) -> list[int]:
    """An array as it lies in the memory of its argument."""
    size = _width(program, port) // 8
    places = map(port.place, range(math.prod(length for length, _ in port.levels)))
    return [int.from_bytes(contents[place : place + size], "little") for place in places]


def _with_elements(program: Program, port: ArrayPort, contents: bytes, elements: list[int]) -> bytes:
    changed, size = bytearray(contents), _width(program, port) // 8
    for index, element in enumerate(elements):
        place = port.place(index)
        changed[place : place + size] = element.to_bytes(size, "little")
    return bytes(changed)
