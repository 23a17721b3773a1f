# SPDX-License-Identifier: Apache-2.0
"""Indices that count bytes, as clang writes them for pointers that move, become indices of elements."""

from __future__ import annotations

from dataclasses import replace

from openhls.frontend.llvm.module import Function, Instruction, Local, Number, Operand
from openhls.frontend.rewriting import Rewriting
from openhls.frontend.roots import Roots
from openhls.frontend.types import Array, Int
from openhls.ir import signed

_BYTE = Int(8)


def counts_bytes(it: Instruction) -> bool:
    """True for an address whose index, a variable, counts bytes."""
    is_one = it.opcode == "getelementptr" and it.flag == _BYTE and len(it.operands) == 2
    return is_one and isinstance(it.operands[1], Local)


def count_elements(function: Function, roots: Roots, left_alone: frozenset[str]) -> None:
    """`left_alone` are variables whose addresses stay as they are."""
    scaled = _Scaled(Rewriting(function), roots)
    for it in list(roots.made.values()):
        if counts_bytes(it) and not (leads := roots.of(it.operands[0])) & left_alone:
            scaled.try_steps(it, [step for step in roots.steps(leads) if step > 1])
    for it in roots.made.values():
        if it.opcode == "icmp":
            scaled.compare_elements(it)
    scaled.rewriting.finish()


class _Scaled:
    """`rewriting` takes what is written. Values are known to be multiples of a step if all that they are made of is."""

    def __init__(self, rewriting: Rewriting, roots: Roots) -> None:
        self.rewriting = rewriting
        self._made = roots.made
        self._quotients: dict[tuple[str, int], Local] = {}

    def try_steps(self, it: Instruction, steps: list[int]) -> None:
        """The address `it` in the longest of the steps that its index is a multiple of."""
        index = it.operands[1]
        step = next((step for step in steps if self._divides(step, index, frozenset({"nsw", "nuw"}), set())), None)
        if step is not None:
            it.operands[1] = self._quotient(index, step)
            it.flag = Array(step, _BYTE)

    def compare_elements(self, it: Instruction) -> None:
        """Compares elements where bytes were compared, so that bytes need not be counted."""
        first, second = it.operands
        for name, step in list(self._quotients):
            is_known = isinstance(second, Local) and (second.name, step) in self._quotients
            is_multiple = isinstance(second, Number) and self._divides(step, second, frozenset(), set())
            if isinstance(first, Local) and first.name == name and (is_known or is_multiple):
                it.operands = [self._quotient(first, step), self._quotient(second, step)]
                return

    def _divides(self, step: int, operand: Operand, without: frozenset[str], assumed: set[str]) -> bool:
        """`without`: the kinds of wrapping that sums must not have: one of them is enough."""
        if isinstance(operand, Number):
            return signed(operand.bits, operand.width) % step == 0
        it = self._made.get(operand.name) if isinstance(operand, Local) else None
        if it is None:
            return False
        if it.name in assumed:
            return True
        first, second = (*it.operands, None, None)[:2]
        flags = it.flag if isinstance(it.flag, frozenset) else frozenset()
        if it.opcode in ("phi", "select"):
            options = it.operands[1 if it.opcode == "select" else 0 :]
            return all(self._divides(step, each, without, assumed | {it.name}) for each in options)
        if it.opcode in ("add", "sub") or (it.opcode == "or" and "disjoint" in flags):
            is_sum = it.opcode == "or" or bool(flags & without) or it.type == Int(64)
            return is_sum and all(self._divides(step, each, without, assumed) for each in it.operands)
        if it.opcode in ("mul", "shl") and isinstance(second, Number):
            factor = second.bits if it.opcode == "mul" else 1 << second.bits
            is_product = bool(flags & without) or it.type == Int(64)
            return is_product and factor % step == 0 and factor < 1 << (second.width - 1)
        if it.opcode in ("sext", "zext") and first is not None:
            kind = "nsw" if it.opcode == "sext" or "nneg" in flags else "nuw"
            return self._divides(step, first, frozenset({kind}), assumed)
        return False

    def _quotient(self, operand: Operand, step: int) -> Operand:
        """A multiple of a step, divided by it."""
        if isinstance(operand, Number):
            count = signed(operand.bits, operand.width) // step
            return Number(operand.width, count % (1 << operand.width))
        assert isinstance(operand, Local)
        it = self._made[operand.name]
        result = Local(f"{it.name}.by{step}")
        if (it.name, step) in self._quotients:
            return result
        self._quotients[it.name, step] = result
        if it.opcode in ("mul", "shl"):
            factor = it.operands[1]
            assert isinstance(factor, Number)
            count = (factor.bits if it.opcode == "mul" else 1 << factor.bits) // step
            operands = [it.operands[0], Number(factor.width, count)]
            made = replace(it, name=result.name, opcode="mul", operands=operands, flag=frozenset({"nsw"}))
        else:
            kept = 1 if it.opcode == "select" else 0
            operands = [*it.operands[:kept], *(self._quotient(each, step) for each in it.operands[kept:])]
            made = replace(it, name=result.name, operands=operands)
            if it.opcode == "or":  # a sum, if no bit is in both
                made = replace(made, opcode="add", flag=frozenset({"nsw", "nuw"}))
        self.rewriting.behind(it, made)
        if it.opcode == "phi":  # one counter is enough
            assert isinstance(it.type, Int)
            factor = Number(it.type.width, step)
            flags = frozenset({"nsw"}) if it.type == Int(64) else frozenset()
            product = Instruction("mul", it.name, it.type, [result, factor], [it.type] * 2, flags)
            self.rewriting.instead(it, replace(product, location=it.location))
        return result
