# SPDX-License-Identifier: Apache-2.0
"""What clang has proved about arithmetic that does not wrap around."""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.ir import Const, Operand, Value


@dataclass
class Wrapping:
    """`unsigned` and `signed`: values whose operation gives what unlimited integers would, as such numbers."""

    unsigned: set[Operand] = field(default_factory=set)
    signed: set[Operand] = field(default_factory=set)
    _fits: dict[tuple[Operand, int], bool] = field(default_factory=dict)  # value, bits: proved by all that say so

    def learn(self, opcode: str, flags: frozenset[str], operands: list[Operand], result: Operand) -> None:
        """Takes one instruction of LLVM into account, with what its operands and result have become."""
        if not isinstance(result, Value):
            return
        a = operands[0]
        if opcode == "zext":
            self._learn_fit(a, a.width - 1, "nneg" in flags)
        if opcode == "shl" and isinstance(operands[1], Const):
            self._learn_fit(a, a.width - operands[1].bits, "nuw" in flags)
        if result not in operands:
            if flags & {"nuw", "disjoint"}:
                self.unsigned.add(result)
            if flags & {"nsw", "disjoint"}:
                self.signed.add(result)

    def fits(self, operand: Operand, bits: int) -> bool:
        """True if a value is a number of so few bits, unsigned, wherever it is used."""
        return any(self._fits.get((operand, fewer)) for fewer in range(1, bits + 1))

    def _learn_fit(self, operand: Operand, bits: int, proved: bool) -> None:
        self._fits[(operand, bits)] = proved and self._fits.get((operand, bits), True)
