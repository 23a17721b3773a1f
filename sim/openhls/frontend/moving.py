# SPDX-License-Identifier: Apache-2.0
"""Pointers that move in a loop (`p++`) become an index of one pointer that stays."""

from __future__ import annotations

from openhls.frontend.llvm.module import Block, Function, Instruction, Local, Number, Operand
from openhls.frontend.types import Int, Pointer

_INDEX = Int(64)
_LONGEST = 8  # steps of a pointer in one iteration


def index_moving_pointers(function: Function) -> None:
    """Rewrites each phi of pointers that starts at one pointer and moves on by elements of one size."""
    made = {it.name: (block, it) for block in function.blocks.values() for it in block.instructions if it.name}
    for block in function.blocks.values():
        for it in [it for it in block.instructions if it.opcode == "phi" and isinstance(it.type, Pointer)]:
            _index(block, it, made)


def _steps(operand: Operand, phi: Instruction, made: dict[str, tuple[Block, Instruction]]) -> list[Instruction] | None:
    """The address computations that lead from a phi to `operand`, last one first; None if it comes from elsewhere."""
    found: list[Instruction] = []
    while isinstance(operand, Local) and operand.name != phi.name:
        step = made[operand.name][1] if operand.name in made else None
        if step is None or step.opcode != "getelementptr" or len(step.operands) != 2 or len(found) == _LONGEST:
            return None
        found.append(step)
        operand = step.operands[0]
    return found if isinstance(operand, Local) else None


def _index(block: Block, phi: Instruction, made: dict[str, tuple[Block, Instruction]]) -> None:
    ways = [_steps(operand, phi, made) for operand in phi.operands]
    starts = {operand for operand, steps in zip(phi.operands, ways, strict=True) if steps is None}
    moves = [step for steps in ways if steps for step in steps]
    kinds = {step.flag for step in moves}
    if len(starts) != 1 or len(kinds) != 1:
        return
    index = f"{phi.name}.index"
    values: list[Operand] = []
    for steps in ways:
        value: Operand = Number(64, 0) if steps is None else Local(index)
        for step in reversed(steps or []):
            value = _advanced(made[step.name][0], step, value)
        values.append(value)
    kinds_of_values = [_INDEX] * len(values)
    counter = Instruction("phi", index, _INDEX, values, list(kinds_of_values), phi.flag, phi.location)
    place = Instruction(
        "getelementptr",
        phi.name,
        Pointer(),
        [*starts, Local(index)],
        [Pointer(), _INDEX],
        next(iter(kinds)),
        phi.location,
    )
    block.instructions[block.instructions.index(phi)] = counter
    first = next(n for n, it in enumerate(block.instructions) if it.opcode != "phi")
    block.instructions.insert(first, place)


def _advanced(block: Block, step: Instruction, index: Operand) -> Operand:
    """`index` plus the index of a step, behind it in its block."""
    name = f"{step.name}.index"
    if all(it.name != name for it in block.instructions):
        by, kind = step.operands[1], step.types[1]
        added = [Instruction("add", name, _INDEX, [index, by], [_INDEX, _INDEX], frozenset({"nsw"}), step.location)]
        if isinstance(by, Number):
            bits = by.bits - (1 << by.width) * (by.bits >> (by.width - 1))
            added[0].operands[1] = Number(64, bits % (1 << 64))
        elif kind != _INDEX:
            wide = Local(f"{name}.wide")
            added[0].operands[1] = wide
            added.insert(0, Instruction("sext", wide.name, _INDEX, [by], [kind], frozenset(), step.location))
        at = block.instructions.index(step) + 1
        block.instructions[at:at] = added
    return Local(name)
