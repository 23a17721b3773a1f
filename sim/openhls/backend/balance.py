# SPDX-License-Identifier: Apache-2.0
"""Sums with a carried value: (carried + x) + y becomes carried + (x + y), with one addition in the recurrence."""

from __future__ import annotations

from dataclasses import replace

from openhls.ir import Block, Loop, Opcode, Operand, Operation, Value


def balance(loop: Loop) -> Loop:
    """An innermost loop with its sums in that order."""
    (block,) = loop.body
    assert isinstance(block, Block)
    operations = list(block.operations)
    while (changed := balanced_once(operations, loop)) is not None:
        operations = changed
    return replace(loop, body=(replace(block, operations=tuple(operations)),))


def balanced_once(operations: list[Operation], loop: Loop) -> list[Operation] | None:
    """The operations with one sum changed, or None."""
    definitions = {op.result.name: op for op in operations if op.result is not None}
    uses = count_uses(operations, loop)
    recurrent = recurrences(operations, loop)

    def in_recurrence(operand: Operand) -> bool:
        return isinstance(operand, Value) and operand.name in recurrent

    for number, outer in enumerate(operations):
        if outer.opcode is not Opcode.ADD or outer.result is None:
            continue
        for left, right in (outer.operands, outer.operands[::-1]):
            inner = definitions.get(left.name) if isinstance(left, Value) else None
            if inner is None or inner.opcode is not Opcode.ADD or uses[str(left)] != 1 or in_recurrence(right):
                continue
            kept = [operand for operand in inner.operands if in_recurrence(operand)]
            moved = [operand for operand in inner.operands if not in_recurrence(operand)]
            if len(kept) != 1:
                continue
            joined = Value(f"{outer.result.name}.joined", outer.result.width)
            rest = [op for op in operations[:number] if op is not inner]
            pair = Operation(Opcode.ADD, joined, (moved[0], right), inner.location)
            whole = replace(outer, operands=(kept[0], joined))
            return [*rest, pair, whole, *operations[number + 1 :]]
    return None


def count_uses(operations: list[Operation], loop: Loop) -> dict[str, int]:
    """How often each value is used in the loop or handed on."""
    used: list[Operand] = [operand for op in operations for operand in op.inputs()]
    used += [item.following for item in loop.carried] + [result.source for result in loop.results] + [loop.again]
    counts: dict[str, int] = {}
    for operand in used:
        counts[str(operand)] = counts.get(str(operand), 0) + 1
    return counts


def recurrences(operations: list[Operation], loop: Loop) -> set[str]:
    """Values on a path from a carried value to its own next value."""
    found: set[str] = set()
    for item in loop.carried:
        reached = {item.value.name}
        for operation in operations:
            names = {operand.name for operand in operation.inputs() if isinstance(operand, Value)}
            if operation.result is not None and names & reached:
                reached.add(operation.result.name)
        needed = {item.following.name} if isinstance(item.following, Value) else set()
        for operation in reversed(operations):
            if operation.result is not None and operation.result.name in needed:
                needed |= {operand.name for operand in operation.inputs() if isinstance(operand, Value)}
        if item.value.name in needed:
            found |= reached & needed
    return found
