# SPDX-License-Identifier: Apache-2.0
"""The ends of streams in a process: who pops an input, who pushes an output, and the credits of output buffers."""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.emit.netlist import (
    ONE,
    RESET,
    ZERO,
    Module,
    Net,
    Term,
    add,
    all_of,
    any_of,
    choose,
    choose_first,
    extend,
    literal,
    negate,
    operate,
)
from openhls.ir import Direction, Opcode, Stream


@dataclass
class InputEnd:
    """A stream that the process reads: words are taken by its own reads or by a called process."""

    data: Net
    valid: Net
    ready: Net
    pops: list[Term] = field(default_factory=list)

    def finish(self, module: Module) -> None:
        module.assign(self.ready, any_of(self.pops))


@dataclass(frozen=True)
class Push:
    """A write of an own pipeline: `enable` when its step completes, with the predicate still to be looked at.

    `granted`: it has a place in the buffer.
    """

    enable: Term
    predicate: Term
    data: Term
    granted: Term = ONE

    @property
    def taken(self) -> Term:
        return all_of([self.enable, self.predicate])


@dataclass(frozen=True)
class Claim:
    """An iteration that may write `words` words starts with `launch`; `places` keep it from waiting for its own."""

    launch: Term
    words: int
    places: int


@dataclass
class OutputEnd:
    """A stream that the process writes: its own words go through a buffer with credits, those of a callee around it.

    `fifo_depth`: the FIFO behind the stream is in the buffer, with so many places; it empties when `restart` is 1.
    """

    name: str
    data: Net
    valid: Net
    ready: Net
    fifo_depth: int = 0
    restart: Term = ZERO
    pushes: list[Push] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    callees: list[tuple[Net, Net, Net]] = field(default_factory=list)  # data, valid, ready
    room_tests: list[tuple[Net, int]] = field(default_factory=list)
    empty: Term = ONE

    @property
    def left(self) -> Term:
        """A bit: all words have left the process. Those in a FIFO have."""
        return ONE if self.fifo_depth else self.empty

    def room_for(self, module: Module, words: int) -> Net:
        """A bit: the buffer takes `words` more."""
        net = module.net(f"{self.name}_room_for_{words}", 1)
        self.room_tests.append((net, words))
        return net

    def callee(self, module: Module, child: str) -> tuple[Net, Net, Net]:
        """Data, valid and ready for a called process that writes this stream."""
        data = module.net(f"{child}_{self.name}_data", self.data.width)
        nets = data, module.net(f"{child}_{self.name}_valid", 1), module.net(f"{child}_{self.name}_ready", 1)
        self.callees.append(nets)
        return nets

    def finish(self, module: Module) -> None:
        sources: list[tuple[Term, Term]] = []
        if self.pushes:
            own_data, own_valid = self.buffer(module)
            sources.append((own_valid, own_data))
        for data, valid, ready in self.callees:
            sources.append((all_of([valid, self.empty]), data))
            module.assign(ready, all_of([self.ready, self.empty]))
        module.assign(self.valid, any_of([valid for valid, _ in sources]))
        module.assign(self.data, choose_first(sources) if sources else literal(self.data.width, 0))

    def buffer(self, module: Module) -> tuple[Net, Net]:
        """The buffer with its credits."""
        depth = max(claim.places for claim in self.claims) + self.fifo_depth
        bits = depth.bit_length()
        room = module.net(f"{self.name}_room", bits)
        for net, words in self.room_tests:
            module.assign(net, negate(operate(Opcode.ULT, room, literal(bits, words))))
        take: Term = literal(bits, 0)
        for claim in self.claims:
            take = choose(claim.launch, literal(bits, claim.words), take)
        returned: Term = literal(bits, 0)
        for push in self.pushes:
            unused = all_of([push.enable, push.granted, negate(push.predicate)])
            if unused != ZERO:
                returned = add(returned, extend(unused, bits))
        data = module.net(f"{self.name}_buffered", self.data.width)
        valid = module.net(f"{self.name}_buffered_valid", 1)
        empty = module.net(f"{self.name}_empty", 1)
        self.empty = empty
        module.instance(
            "openhls_credit_fifo",
            f"{self.name}_buffer",
            {
                "rst": any_of([RESET, self.restart]),
                "take": take,
                "give_back": returned,
                "in_data": choose_first([(push.taken, push.data) for push in self.pushes]),
                "in_valid": any_of([push.taken for push in self.pushes]),
                "out_ready": self.ready,
            },
            {"room": room, "empty": empty, "out_data": data, "out_valid": valid},
            f"words of stream {self.name} on their way out",
            WIDTH=self.data.width,
            DEPTH=depth,
            COUNT=bits,
        )
        return data, valid


def make_end(module: Module, stream: Stream, fifo_depth: int, start: Term) -> InputEnd | OutputEnd:
    """The ports of a stream argument; OutputEnd explains `fifo_depth`."""
    data, valid, ready = (f"{stream.name}_{part}" for part in ("data", "valid", "ready"))
    if stream.direction is Direction.READ:
        return InputEnd(module.input(data, stream.width), module.input(valid, 1), module.output(ready, 1))
    ports = module.output(data, stream.width), module.output(valid, 1), module.input(ready, 1)
    return OutputEnd(stream.name, *ports, fifo_depth, start if fifo_depth else ZERO)
