# SPDX-License-Identifier: Apache-2.0
"""The control flow graph of a function: order, dominators and loops."""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.errors import Unsupported
from openhls.frontend.llvm.module import Function


@dataclass
class NaturalLoop:
    """A loop: its header, its blocks (with those of inner loops) and the loops directly in it, by header."""

    header: str
    blocks: set[str]
    latches: list[str]
    inner: dict[str, NaturalLoop] = field(default_factory=dict)


class Graph:
    """Blocks that can be reached, `order` in reverse postorder."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.entry = next(iter(function.blocks))
        self.successors = {name: _targets(function, name) for name in function.blocks}
        self.order = self._reverse_postorder()
        reached = set(self.order)
        self.predecessors: dict[str, list[str]] = {name: [] for name in self.order}
        for name in self.order:
            for target in dict.fromkeys(self.successors[name]):
                if target in reached:
                    self.predecessors[target].append(name)
        self._dominators = self._find_dominators()
        self.loops = self._find_loops()

    def _reverse_postorder(self) -> list[str]:
        order: list[str] = []
        seen = {self.entry}
        stack = [(self.entry, iter(self.successors[self.entry]))]
        while stack:
            name, targets = stack[-1]
            target = next(targets, None)
            if target is None:
                order.append(name)
                stack.pop()
            elif target not in seen:
                seen.add(target)
                stack.append((target, iter(self.successors[target])))
        return order[::-1]

    def _find_dominators(self) -> dict[str, set[str]]:
        everything = set(self.order)
        dominators = {name: everything for name in self.order}
        dominators[self.entry] = {self.entry}
        changed = True
        while changed:
            changed = False
            for name in self.order[1:]:
                found = set.intersection(*(dominators[before] for before in self.predecessors[name])) | {name}
                if found != dominators[name]:
                    dominators[name] = found
                    changed = True
        return dominators

    def dominates(self, a: str, b: str) -> bool:
        """True if every way to b goes through a."""
        return a in self._dominators[b]

    def _find_loops(self) -> dict[str, NaturalLoop]:
        found: dict[str, NaturalLoop] = {}
        position = {name: index for index, name in enumerate(self.order)}
        for name in self.order:
            for target in dict.fromkeys(self.successors[name]):
                if position[target] > position[name]:
                    continue
                if not self.dominates(target, name):
                    last = self.function.blocks[name].instructions[-1]
                    raise Unsupported(last.location, "a loop with two entries", "write it as a for loop, without goto")
                loop = found.setdefault(target, NaturalLoop(target, {target}, []))
                loop.latches.append(name)
                loop.blocks |= self._body(target, name)
        outermost: dict[str, NaturalLoop] = {}
        for loop in sorted(found.values(), key=lambda loop: len(loop.blocks)):
            around = [other for other in found.values() if other is not loop and loop.header in other.blocks]
            parent = min(around, key=lambda other: len(other.blocks), default=None)
            (outermost if parent is None else parent.inner)[loop.header] = loop
        return outermost

    def _body(self, header: str, latch: str) -> set[str]:
        body, stack = {header, latch}, [latch]
        while stack:
            name = stack.pop()
            if name == header:
                continue
            for before in self.predecessors[name]:
                if before not in body:
                    body.add(before)
                    stack.append(before)
        return body


def _targets(function: Function, name: str) -> list[str]:
    last = function.blocks[name].instructions[-1]
    return list(last.flag) if last.opcode in ("br", "switch") and isinstance(last.flag, list) else []
