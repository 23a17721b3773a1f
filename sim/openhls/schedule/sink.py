# SPDX-License-Identifier: Apache-2.0
"""Operations moved later where that takes fewer registers.

The schedule starts everything as early as it can. What is then wider than that which it is made of - an extension, a
word of a memory, a choice among constants - waits for its user in more bits than its operands would. So, from the last
operation to the first, each moves to the latest step that its users, the orders of accesses and the clock allow, if
that saves bits. Nothing else moves: the depth and the interval stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.ir import Opcode, Operand, Operation, Value
from openhls.schedule.delays import Cost
from openhls.schedule.dependence import Body, Edge
from openhls.schedule.target import Target

_FIXED = (Opcode.READ, Opcode.WRITE, Opcode.STORE, Opcode.EMPTY, Opcode.FULL)


@dataclass
class Sink:
    """Moves of the operations of a pipelined loop that starts an iteration in every cycle."""

    body: Body
    edges: list[Edge]
    costs: list[Cost]
    target: Target
    pinned: set[str]  # values that are handed on, at the step where they are
    steps: list[int]
    offsets: list[float]
    ready: dict[str, tuple[int, float]]
    uses: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.uses = {}
        for number, operation in enumerate(self.body.operations):
            for operand in operation.inputs():
                if isinstance(operand, Value):
                    self.uses.setdefault(operand.name, []).append(number)
        self.leaving: dict[int, list[Edge]] = {}
        for edge in self.edges:
            self.leaving.setdefault(edge.earlier, []).append(edge)

    def run(self) -> None:
        for number in range(len(self.body.operations) - 1, -1, -1):
            operation = self.body.operations[number]
            if self.movable(operation):
                self.move(number, operation)

    def movable(self, operation: Operation) -> bool:
        if operation.opcode in _FIXED or operation.result is None or operation.result.name in self.pinned:
            return False
        return bool(self.uses.get(operation.result.name))

    def move(self, number: int, operation: Operation) -> None:
        assert operation.result is not None
        name, cost = operation.result.name, self.costs[number]
        latest = min(self.steps[user] for user in self.uses[name]) - cost.latency
        for edge in self.leaving.get(number, []):
            latest = min(latest, self.steps[edge.later] + edge.distance - edge.latency)
        for step in range(latest, self.steps[number], -1):
            offset = self.offset_at(operation, step)
            if offset > self.target.delays.clock_to_q and offset + used(cost) > self.target.budget + 1e-9:
                continue
            end = (step + cost.latency, cost.through if cost.latency else offset + cost.through)
            if self.in_time(name, end) and self.saves(operation, step - self.steps[number], step):
                self.steps[number], self.offsets[number], self.ready[name] = step, offset, end
                return

    def offset_at(self, operation: Operation, step: int) -> float:
        """When in `step` the operands are there."""
        at = [self.target.delays.clock_to_q]
        for operand in operation.inputs():
            if isinstance(operand, Value) and operand.name in self.ready and self.ready[operand.name][0] == step:
                at.append(self.ready[operand.name][1])
        return max(at)

    def in_time(self, name: str, end: tuple[int, float]) -> bool:
        """True if a value that is ready at `end` is not late for its users, which stay as they are."""
        for user in self.uses[name]:
            if self.steps[user] < end[0] or (self.steps[user] == end[0] and self.offsets[user] < end[1] - 1e-9):
                return False
        return True

    def saves(self, operation: Operation, moved: int, step: int) -> bool:
        """Bits in registers: the result lives shorter, operands without a later use longer."""
        assert operation.result is not None
        longer = sum(operand.width * max(0, step - self.last_use(operand)) for operand in set(operation.inputs()))
        return operation.result.width * moved > longer

    def last_use(self, operand: Operand) -> int:
        if not isinstance(operand, Value) or operand.name not in self.ready:
            return 1 << 30  # a constant, or a value from before the loop
        if operand.name in self.pinned:
            return 1 << 30
        return max(self.steps[user] for user in self.uses[operand.name])


def used(cost: Cost) -> float:
    """Nanoseconds of the step in which an operation starts."""
    return cost.arrive if cost.latency or cost.arrive else cost.through
