# SPDX-License-Identifier: Apache-2.0
"""Conditions as reduced ordered decision diagrams, so that equal conditions are one object.

They say when a block of a region runs. A condition that always holds is found to be TRUE, however it was put together,
and a select asks only for what is not known from the block it stands in.
"""

from __future__ import annotations

from collections.abc import Callable

from openhls.ir import Operand

Node = int
FALSE: Node = 0
TRUE: Node = 1


class Conditions:
    """Diagrams over one-bit operands, ordered by their first use."""

    def __init__(self) -> None:
        self._nodes: list[tuple[int, Node, Node]] = [(1 << 60, 0, 0), (1 << 60, 1, 1)]  # variable, if 1, if 0
        self._unique: dict[tuple[int, Node, Node], Node] = {}
        self._variables: dict[Operand, int] = {}
        self._atoms: list[Operand] = []
        self._choices: dict[tuple[Node, Node, Node], Node] = {}
        self._restrictions: dict[tuple[Node, Node], Node] = {}

    def atom(self, operand: Operand) -> Node:
        """The condition that an operand is 1."""
        if operand not in self._variables:
            self._variables[operand] = len(self._atoms)
            self._atoms.append(operand)
        return self._make(self._variables[operand], TRUE, FALSE)

    def _make(self, variable: int, high: Node, low: Node) -> Node:
        if high == low:
            return high
        key = (variable, high, low)
        if key not in self._unique:
            self._unique[key] = len(self._nodes)
            self._nodes.append(key)
        return self._unique[key]

    def _cofactors(self, node: Node, variable: int) -> tuple[Node, Node]:
        top, high, low = self._nodes[node]
        return (high, low) if top == variable else (node, node)

    def choose(self, condition: Node, high: Node, low: Node) -> Node:
        """`condition` ? `high` : `low`."""
        if condition == TRUE:
            return high
        if condition == FALSE:
            return low
        if high == low:
            return high
        key = (condition, high, low)
        if key not in self._choices:
            variable = min(self._nodes[node][0] for node in key)
            (c1, c0), (h1, h0), (l1, l0) = (self._cofactors(node, variable) for node in key)
            self._choices[key] = self._make(variable, self.choose(c1, h1, l1), self.choose(c0, h0, l0))
        return self._choices[key]

    def both(self, a: Node, b: Node) -> Node:
        """a and b."""
        return self.choose(a, b, FALSE)

    def either(self, a: Node, b: Node) -> Node:
        """a or b."""
        return self.choose(a, TRUE, b)

    def negate(self, a: Node) -> Node:
        """not a."""
        return self.choose(a, FALSE, TRUE)

    def restrict(self, node: Node, care: Node) -> Node:
        """A condition that equals `node` wherever `care` holds, and is simpler if it can be."""
        if care == FALSE:
            return FALSE
        if care == TRUE or node in (TRUE, FALSE):
            return node
        if node == care:
            return TRUE
        key = (node, care)
        if key not in self._restrictions:
            variable = min(self._nodes[node][0], self._nodes[care][0])
            (n1, n0), (c1, c0) = self._cofactors(node, variable), self._cofactors(care, variable)
            if c1 == FALSE:
                simpler = self.restrict(n0, c0)
            elif c0 == FALSE:
                simpler = self.restrict(n1, c1)
            elif n1 == n0:
                simpler = self.restrict(node, self.either(c1, c0))
            else:
                simpler = self._make(variable, self.restrict(n1, c1), self.restrict(n0, c0))
            self._restrictions[key] = simpler
        return self._restrictions[key]

    def build(
        self, node: Node, choose: Callable[[Operand, Operand, Operand], Operand], known: dict[Node, Operand]
    ) -> Operand:
        """The condition as an operand. `choose` makes a select of one-bit operands, `known` is what exists already."""
        if node not in known:
            variable, high, low = self._nodes[node]
            known[node] = choose(self._atoms[variable], self.build(high, choose, known), self.build(low, choose, known))
        return known[node]
