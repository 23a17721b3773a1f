# SPDX-License-Identifier: Apache-2.0
"""Sums with a carried value: (carried + x) + y becomes carried + (x + y), with one addition in the recurrence."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_

from openhls.ir import Block, Loop, Opcode, Operand, Operation, Value, definitions_of


def balance(loop: Loop, shared: bool = False) -> Loop:
    """An innermost loop with its sums in that order.

    With `shared`, carried + x may have other uses: it stays for them, at the cost of one more addition.
    """
    (block,) = loop.body
    assert isinstance(block, Block)
    operations = list(block.operations)
    while (changed := balanced_once(operations, loop, shared)) is not None:
        operations = changed
    return replace(loop, body=(replace(block, operations=tuple(operations)),))


def balanced_once(operations: list[Operation], loop: Loop, shared: bool) -> list[Operation] | None:
    """The operations with one sum changed, or None."""
    definitions = definitions_of(operations)
    uses = count_uses(operations, loop)
    recurrent = recurrences(operations, loop)

    def in_recurrence(operand: Operand) -> bool:
        return isinstance(operand, Value) and operand.name in recurrent

    for number, outer in enumerate(operations):
        if outer.opcode is not Opcode.ADD or outer.result is None:
            continue
        for left, right in (outer.operands, outer.operands[::-1]):
            inner = definitions.get(left.name) if isinstance(left, Value) else None
            if inner is None or inner.opcode is not Opcode.ADD or in_recurrence(right):
                continue
            alone = uses[str(left)] == 1
            if not alone and not (shared and outer.result.name in recurrent):
                continue
            kept = [operand for operand in inner.operands if in_recurrence(operand)]
            moved = [operand for operand in inner.operands if not in_recurrence(operand)]
            if len(kept) != 1:
                continue
            joined = Value(f"{outer.result.name}.joined", outer.result.width)
            rest = [op for op in operations[:number] if op is not inner or not alone]
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
    reached: dict[str, int] = {}  # which carried values a value depends on, a bit for each
    needed: dict[str, int] = {}  # the next value of which of them depends on it
    for number, item in enumerate(loop.carried):
        reached[item.value.name] = 1 << number
        if isinstance(item.following, Value):
            needed[item.following.name] = needed.get(item.following.name, 0) | 1 << number
    for operation in operations:
        if operation.result is not None:
            sources = [reached.get(operand.name, 0) for operand in operation.inputs() if isinstance(operand, Value)]
            reached[operation.result.name] = reduce(or_, sources, 0)
    for operation in reversed(operations):
        wanted = needed.get(operation.result.name, 0) if operation.result is not None else 0
        if wanted:
            for operand in operation.inputs():
                if isinstance(operand, Value):
                    needed[operand.name] = needed.get(operand.name, 0) | wanted
    closed = sum(needed.get(item.value.name, 0) & 1 << number for number, item in enumerate(loop.carried))
    return {name for name, bits in needed.items() if bits & reached.get(name, 0) & closed}
