# SPDX-License-Identifier: Apache-2.0
"""Counters, and values that make up array indices.

The latter stay wide enough to be counted modulo the length of the array.

The dependence analysis takes indices apart modulo the power of two that covers an array (backend.affine). A counter
that is narrower than that no longer wraps where the index does, and the analysis would not know where it does.
"""

from __future__ import annotations

from collections.abc import Mapping

from openhls.ir import (
    ARRAY_ACCESSES,
    Carried,
    Const,
    Opcode,
    Operand,
    Operation,
    Process,
    Value,
    definitions_of,
    loops_of,
    operations_of,
)
from openhls.passes.narrowing.demand import index_bits

OPENED = frozenset(
    {Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.SHL, Opcode.ZEXT, Opcode.SEXT, Opcode.EXTRACT, Opcode.CONCAT}
)


def least_widths(process: Process) -> dict[str, int]:
    """Bits that a value must keep, for those that make up indices of arrays that are not tables."""
    bits = {array.name: index_bits(array.length) for array in process.arrays if array.initial is None}
    operations = list(operations_of(process.body))
    definitions = definitions_of(operations)
    sources = {item.value.name: (item.initial, item.following) for item in carried_of(process)}
    found: dict[str, int] = {}
    pending: list[tuple[Operand, int]] = [
        (op.operands[0], bits[op.target]) for op in operations if op.opcode in ARRAY_ACCESSES and op.target in bits
    ]
    while pending:
        operand, least = pending.pop()
        if not isinstance(operand, Value) or found.get(operand.name, 0) >= least:
            continue
        found[operand.name] = least
        pending += [(source, least) for source in behind(operand, definitions, sources)]
    return found


def carried_of(process: Process) -> list[Carried]:
    return [item for loop in loops_of(process.body) for item in loop.carried]


def counters(process: Process) -> set[str]:
    """Values that loops carry and add a constant to, and their sums."""
    found: set[str] = set()
    definitions = definitions_of(operations_of(process.body))
    for item in carried_of(process):
        if not isinstance(item.following, Value):
            continue
        step = definitions.get(item.following.name)
        if step is None or step.opcode is not Opcode.ADD or item.value not in step.operands:
            continue
        if any(isinstance(operand, Const) for operand in step.operands):
            found |= {item.value.name, item.following.name}
    return found


def behind(
    value: Value, definitions: Mapping[str, Operation], carried: Mapping[str, tuple[Operand, ...]]
) -> tuple[Operand, ...]:
    """What the analysis sees behind a value."""
    operation = definitions.get(value.name)
    if operation is None:
        return carried.get(value.name, ())
    return operation.operands if operation.opcode in OPENED else ()
