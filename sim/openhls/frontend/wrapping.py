# SPDX-License-Identifier: Apache-2.0
"""What clang has proved about arithmetic that does not wrap around."""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.frontend.llvm.module import Instruction
from openhls.ir import Const, Operand, Value


@dataclass
class Wrapping:
    """`unsigned` and `signed`: values whose operation gives what unlimited integers would, as such numbers."""

    unsigned: set[Operand] = field(default_factory=set)
    signed: set[Operand] = field(default_factory=set)
    _fits: dict[tuple[Operand, int], bool] = field(default_factory=dict)  # value, bits: proved by all that say so

    def learn(self, it: Instruction, operands: list[Operand], result: Operand) -> None:
        """Takes one instruction and its lowered operands and result into account."""
        if not isinstance(it.flag, frozenset) or not isinstance(result, Value):
            return
        a = operands[0]
        if it.opcode == "zext":
            self._learn_fit(a, a.width - 1, "nneg" in it.flag)
        if it.opcode == "shl" and isinstance(operands[1], Const):
            self._learn_fit(a, a.width - operands[1].bits, "nuw" in it.flag)
        if result not in operands:
            if "nuw" in it.flag:
                self.unsigned.add(result)
            if "nsw" in it.flag:
                self.signed.add(result)

    def fits(self, operand: Operand, bits: int) -> bool:
        """Whether a value is a number of so few bits, unsigned, wherever it is used."""
        return any(self._fits.get((operand, fewer)) for fewer in range(1, bits + 1))

    def _learn_fit(self, operand: Operand, bits: int, proved: bool) -> None:
        self._fits[(operand, bits)] = proved and self._fits.get((operand, bits), True)
