# SPDX-License-Identifier: Apache-2.0
"""Predicates that are never 1 together: their accesses can share a port in one cycle."""

from __future__ import annotations

from openhls.ir import TRUE, Const, Opcode, Operand, Operation

Condition = frozenset[tuple[str, bool]]  # values, and what each has to be


def conditions(predicate: Operand, definitions: dict[str, Operation]) -> Condition:
    """Bits that all have to be as given for the predicate to be 1."""
    found: set[tuple[str, bool]] = set()
    pending: list[tuple[Operand, bool]] = [(predicate, True)]
    while pending:
        operand, wanted = pending.pop()
        if isinstance(operand, Const):
            continue
        found.add((operand.name, wanted))
        operation = definitions.get(operand.name)
        if operation is None or not operation.operands:
            continue
        a, *rest = operation.operands
        if operation.opcode is Opcode.XOR and rest[0] == TRUE:
            pending.append((a, not wanted))
        elif operation.opcode is (Opcode.AND if wanted else Opcode.OR):
            pending += [(a, wanted), (rest[0], wanted)]
    return frozenset(found)


def exclusive(a: Operand, b: Operand, definitions: dict[str, Operation]) -> bool:
    """True if at most one of two predicates of one iteration is 1."""
    other = conditions(b, definitions)
    return any((name, not wanted) in other for name, wanted in conditions(a, definitions))
