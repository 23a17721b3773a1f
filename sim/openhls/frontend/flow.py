# SPDX-License-Identifier: Apache-2.0
"""When the blocks of a function run, as conditions, and which values arrive in them."""

from __future__ import annotations

from openhls.frontend import boolean
from openhls.frontend.boolean import Conditions, Node
from openhls.frontend.draft import Draft
from openhls.frontend.graph import Graph, NaturalLoop
from openhls.frontend.llvm.module import Instruction
from openhls.ir import FALSE, TRUE, Const, Opcode, Operand

Edge = tuple[str, str]


class Flow:
    """`reach` of each block and the condition of each of the `edges` between them, in the loop that they stand in."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._function = draft.context.function
        self.graph = Graph(self._function)
        self.conditions = Conditions()
        self.known: dict[Node, Operand] = {boolean.TRUE: TRUE, boolean.FALSE: FALSE}
        self.edges: dict[Edge, Node] = {}
        self.reach: dict[str, Node] = {}

    def entering(self, name: str) -> Node:
        """When a block runs, from the blocks before it."""
        total = boolean.FALSE
        for before in self.graph.predecessors[name]:
            total = self.conditions.either(total, self.edges.get((before, name), boolean.FALSE))
        return total

    def build(self, node: Node) -> Operand:
        """A condition as an operand, in the current block."""
        return self.conditions.build(
            node,
            lambda condition, a, b: self._draft.builder.make(Opcode.SELECT, 1, condition, a, b, hint="when"),
            self.known,
        )

    def choose(self, cases: list[tuple[Node, Operand]], care: Node, hint: str) -> Operand:
        """The value of the case whose condition holds; one of them does wherever `care` does."""
        grouped: dict[Operand, Node] = {}
        for node, operand in cases:
            grouped[operand] = self.conditions.either(grouped.get(operand, boolean.FALSE), node)
        (result, _), *rest = reversed(grouped.items())
        for operand, node in rest:
            condition = self.build(self.conditions.restrict(node, care))
            result = self._draft.builder.make(Opcode.SELECT, operand.width, condition, operand, result, hint=hint)
        return result

    def incoming(
        self, it: Instruction, name: str, latches: bool, loop: NaturalLoop | None
    ) -> list[tuple[Node, Operand]]:
        """The cases of a phi: those from the latches of its loop, or the others."""
        cases = []
        assert isinstance(it.flag, list)
        for before, operand in zip(it.flag, it.operands, strict=True):
            if loop is not None and (before in loop.blocks) != latches:
                continue
            if (before, name) in self.edges:
                cases.append((self.edges[(before, name)], self._draft.operand(operand)))
        return cases

    def condition(self, operand: Operand) -> Node:
        """That a bit is 1."""
        if isinstance(operand, Const):
            return boolean.TRUE if operand.bits else boolean.FALSE
        return self.conditions.atom(operand)

    # ---- the ends of blocks ----

    def branch(self, it: Instruction, name: str, reach: Node) -> None:
        assert isinstance(it.flag, list)
        if len(it.flag) == 1:
            self.edges[(name, it.flag[0])] = reach
            return
        condition = self.condition(self._draft.operand(it.operands[0]))
        for target, node in zip(it.flag, (condition, self.conditions.negate(condition)), strict=True):
            before = self.edges.get((name, target), boolean.FALSE) if it.flag[0] == it.flag[1] else boolean.FALSE
            self.edges[(name, target)] = self.conditions.either(before, self.conditions.both(reach, node))

    def switch(self, it: Instruction, name: str, reach: Node) -> None:
        assert isinstance(it.flag, list)
        subject = self._draft.operand(it.operands[0])
        targets: dict[str, Node] = {}
        rest = boolean.TRUE
        closed = self._last(it.flag[0]).opcode == "unreachable" or len(it.flag) > 1 << subject.width
        for number, (target, case) in enumerate(zip(it.flag[1:], it.operands[1:], strict=True), 2):
            equal = boolean.TRUE  # for the last case, if there is no other one
            if not closed or number < len(it.flag):
                equal = self.condition(self._draft.builder.make(Opcode.EQ, 1, subject, self._draft.operand(case)))
            taken = self.conditions.both(rest, equal)
            targets[target] = self.conditions.either(targets.get(target, boolean.FALSE), taken)
            rest = self.conditions.both(rest, self.conditions.negate(equal))
        targets[it.flag[0]] = self.conditions.either(targets.get(it.flag[0], boolean.FALSE), rest)
        for target, node in targets.items():
            self.edges[(name, target)] = self.conditions.both(reach, node)

    def cases(self, it: Instruction, name: str) -> list[Node]:
        """When each of the choices of a select or a phi is taken."""
        if it.opcode == "select":
            condition = self.condition(self._draft.operand(it.operands[0]))
            return [condition, self.conditions.negate(condition)]
        assert isinstance(it.flag, list)
        return [self.edges.get((before, name), boolean.FALSE) for before in it.flag]

    # ---- loops ----

    def is_loop_header(self, name: str) -> bool:
        return any(self.graph.dominates(name, before) for before in self.graph.predecessors[name])

    def repeating(self, loop: NaturalLoop) -> Node:
        """When another iteration follows."""
        total = boolean.FALSE
        for latch in loop.latches:
            total = self.conditions.either(total, self.edges[(latch, loop.header)])
        return total

    def exits(self, loop: NaturalLoop, order: list[str]) -> list[Edge]:
        """The edges that leave a loop, whose blocks are `order`."""
        return [
            (name, target)
            for name in order
            for target in dict.fromkeys(self.graph.successors[name])
            if target not in loop.blocks and self.edges.get((name, target), boolean.FALSE) != boolean.FALSE
        ]

    def closing(self, loop: NaturalLoop) -> Instruction:
        """The branch that closes a loop, with the metadata of the loop if there is any."""
        branches = [self._last(latch) for latch in loop.latches]
        return next((branch for branch in branches if branch.loop >= 0), branches[0])

    def _last(self, name: str) -> Instruction:
        return self._function.blocks[name].instructions[-1]
