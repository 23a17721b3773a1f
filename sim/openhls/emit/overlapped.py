# SPDX-License-Identifier: Apache-2.0
"""The hardware of a dataflow region in a loop whose iterations overlap (overlap.py).

The loop hands each iteration to all groups of stages: a queue for each group keeps the values that its stages get. A
group starts its next iteration when it has ended the one before and has a permit of each ring that it is part of.
Permits go round: a group gives its permit to the next one when it ends. So the last group of a ring gives a buffer back
to the first one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeGuard

from openhls.analysis.storage import Storage
from openhls.emit.dataflow import Stages, run_name
from openhls.emit.netlist import RESET, Net, Term, add, all_of, any_of, choose, equals, literal, negate, operate
from openhls.emit.overlap import Overlap
from openhls.emit.pulses import delayed, flag
from openhls.ir import Call, Opcode, Operand, Value


@dataclass
class Group:
    """Stages that start together. `starts` and `ends` are pulses; `second` is 1 while they use the second buffers."""

    name: str
    calls: list[Call]
    starts: Net
    ends: Net
    busy: Net
    second: Net


@dataclass
class OverlappedStages(Stages):
    """After `build`, `idle` is 1 while no iteration is left in any stage."""

    overlap: Overlap
    idle: Term = field(init=False)
    groups: dict[int, Group] = field(init=False, default_factory=dict)
    taken: dict[str, Term] = field(init=False, default_factory=dict)  # values that the present group has

    def build(self, begin: Net) -> Term:
        """Hands an iteration over after the pulse `begin`; returns the pulse with which the next one may come."""
        module, name = self.around.module, self.region.label
        for number in sorted(set(self.overlap.groups)):
            calls = [c for c, group in zip(self.region.calls, self.overlap.groups, strict=True) if group == number]
            self.groups[number] = self.group(run_name(calls[0]), calls)
        issued = module.net(f"{name}_issued", 1)
        issues = flag(module, f"{name}_issues", begin, issued)
        waits = self.permits()
        rooms: list[Term] = []
        idle: list[Term] = []
        for number, group in self.groups.items():
            room, waiting = self.queue(group, issued)
            free = any_of([negate(group.busy), group.ends])
            module.assign(group.starts, all_of([waiting, free, *waits[number]]))
            self.run(group)
            rooms.append(room)
            idle += [negate(waiting), negate(group.busy)]
        module.assign(issued, all_of([issues, *rooms]))
        self.idle = all_of(idle)
        return issued

    def group(self, name: str, calls: list[Call]) -> Group:
        module = self.around.module
        starts, ends = module.net(f"{name}_starts", 1), module.net(f"{name}_ends", 1)
        busy = flag(module, f"{name}_busy", starts, ends)
        second = module.net(f"{name}_second", 1)
        module.register(second, negate(second), starts, reset=0)
        return Group(name, calls, starts, ends, busy, second)

    def run(self, group: Group) -> None:
        """The stages of a group and the FIFOs between them."""
        begins = delayed(self.around.module, f"{group.name}_begins", group.starts)
        inside = {name for call in group.calls for _, name in call.streams}
        fifos = {fifo.name: self.fifo(fifo, group.starts) for fifo in self.region.fifos if fifo.name in inside}
        done = [self.call(call, group.starts, begins, fifos) for call in group.calls]
        self.around.module.assign(group.ends, all_of([group.busy, *done]))

    def lend(self, array: str, port: Storage, call: Call, inputs: dict[str, Term], outputs: dict[str, Net]) -> None:
        """Connects an array, or the one of its buffers that the stage uses now."""
        first = self.around.arrays[array]
        if array not in self.overlap.doubled:
            first.lend(port, run_name(call), inputs, outputs)
            return
        second = next(group.second for group in self.groups.values() if any(each is call for each in group.calls))
        buffers = [(second, self.around.seconds[array]), (negate(second), first)]
        first.lend_one_of(buffers, port, run_name(call), inputs, outputs)

    def given(self, operand: Operand) -> Term:
        return self.taken[operand.name] if self.changes(operand) else self.operand(operand)

    # ---- what a group waits for ----

    def permits(self) -> dict[int, list[Term]]:
        """For each group, bits that are all 1 when its next iteration may have what it shares with others."""
        counts: dict[tuple[int, int], int] = {}  # permits at the start, by giver and taker
        for ring in self.overlap.rings:
            back = ring.groups[-1], ring.groups[0]
            counts |= dict.fromkeys(pairwise(ring.groups), 0)
            counts[back] = min(ring.buffers, counts.get(back, ring.buffers))
        found: dict[int, list[Term]] = {number: [] for number in self.groups}
        for (giver, taker), count in counts.items():
            given, taken = self.groups[giver], self.groups[taker]
            found[taker].append(self.counter(f"{given.name}_to_{taken.name}", given.ends, taken.starts, count)[1])
        return found

    def counter(self, name: str, up: Term, down: Term, start: int, most: int = 2) -> tuple[Term, Term]:
        """True if a count of at most `most` is below that, and true if it is above 0."""
        count = self.around.module.net(name, most.bit_length())
        one, less = literal(count.width, 1), literal(count.width, -1)
        following = add(count, choose(up, one, less))
        self.around.module.register(count, following, operate(Opcode.XOR, up, down), reset=start)
        return negate(equals(count, literal(count.width, most))), negate(equals(count, literal(count.width, 0)))

    def queue(self, group: Group, issued: Net) -> tuple[Term, Term]:
        """Iterations that the group has not started: true if there is room for one more, and true if there is one.

        What changes from one to the next is in `taken` from the start of the group on.
        """
        module, depth = self.around.module, len(self.groups) + 1
        values = list(dict.fromkeys(each for call in group.calls for _, each in call.scalars if self.changes(each)))
        self.taken = {}
        if not values:
            return self.counter(f"{group.name}_waiting", issued, group.starts, 0, depth)
        terms = [self.operand(each) for each in values]
        word = operate(Opcode.CONCAT, *reversed(terms)) if len(terms) > 1 else terms[0]
        room, waiting = module.net(f"{group.name}_room", 1), module.net(f"{group.name}_waiting", 1)
        head = module.net(f"{group.name}_next_values", word.width)
        module.instance(
            "openhls_fifo",
            f"{group.name}_queue",
            {"rst": RESET, "in_data": word, "in_valid": issued, "out_ready": group.starts},
            {"in_ready": room, "out_data": head, "out_valid": waiting},
            f"iterations for {group.calls[0].process}",
            WIDTH=word.width,
            DEPTH=depth,
        )
        kept = module.register(module.net(f"{group.name}_values", word.width), head, group.starts)
        low = 0
        for each in values:
            self.taken[each.name] = operate(Opcode.EXTRACT, kept, width=each.width, low=low)
            low += each.width
        return room, waiting

    def changes(self, operand: Operand) -> TypeGuard[Value]:
        return isinstance(operand, Value) and operand.name in self.overlap.inner
