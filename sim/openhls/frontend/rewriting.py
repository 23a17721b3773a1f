# SPDX-License-Identifier: Apache-2.0
"""Instructions that are added to a function, or take the place of others."""

from __future__ import annotations

from openhls.frontend.llvm.module import Function, Instruction


class Rewriting:
    """Changes that are noted, and made by `finish`. Phis stay in front of all other instructions of their block."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._behind: dict[int, list[Instruction]] = {}
        self._instead: dict[int, list[Instruction]] = {}
        self._before: dict[int, list[Instruction]] = {}

    def before(self, it: Instruction, *added: Instruction) -> None:
        """Instructions right in front of another one."""
        self._before.setdefault(id(it), []).extend(added)

    def behind(self, it: Instruction, *added: Instruction) -> None:
        """Instructions that follow another one, after all that follow it already."""
        self._behind.setdefault(id(it), []).extend(added)

    def instead(self, it: Instruction, *others: Instruction) -> None:
        """Instructions in place of another one, before all that follow it."""
        self._instead[id(it)] = list(others)

    def finish(self) -> None:
        for block in self._function.blocks.values():
            lists = [
                [*self._before.get(id(it), []), *self._instead.get(id(it), [it]), *self._behind.get(id(it), [])]
                for it in block.instructions
            ]
            heads = sum(it.opcode == "phi" for it in block.instructions)
            first = [it for each in lists[:heads] for it in each]
            phis = [it for it in first if it.opcode == "phi"]
            others = [it for it in first if it.opcode != "phi"]
            block.instructions = phis + others + [it for each in lists[heads:] for it in each]
