# SPDX-License-Identifier: Apache-2.0
"""Exit conditions an iteration ahead.

A loop that starts an iteration per cycle must know within the cycle whether another one follows. Where the condition
depends on counters alone, each iteration works it out for the next one, and it is a register when it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from openhls.ir import PREDICATED, Block, Carried, Const, Loop, Opcode, Operand, Operation, Value, definitions_of


@dataclass(frozen=True)
class Ahead:
    """The loop with its condition carried, and the operations on values from before it that give the first one."""

    loop: Loop
    first: tuple[Operation, ...]


def look_ahead(loop: Loop) -> Ahead:
    """`loop` unchanged where its condition needs a word, an array, a loop inside, or no carried value.

    The body of `loop` ends with a block.
    """
    block = loop.body[-1]
    assert isinstance(block, Block)
    own = [op for region in loop.body if isinstance(region, Block) for op in region.operations]
    definitions = definitions_of(own)
    carried = {item.value.name: item for item in loop.carried}
    inside = {result.value.name for region in loop.body if isinstance(region, Loop) for result in region.results}
    cone = cone_of(loop.again, definitions)
    if not cone or any(op.opcode in PREDICATED or inside & names_of(op) for op in cone):
        return Ahead(loop, ())
    first = Copy({name: item.initial for name, item in carried.items()}, f"{loop.label}_first", {}, [])
    following = Copy({name: item.following for name, item in carried.items()}, f"{loop.label}_next", definitions, [])
    for operation in cone:
        first.add(operation)
        following.add(operation)
    again = Value(f"{loop.label}_again", 1)
    item = Carried(again, first.operand(loop.again), following.operand(loop.again))
    body = replace(block, operations=(*block.operations, *following.operations))
    changed = replace(loop, carried=(*loop.carried, item), body=(*loop.body[:-1], body), again=again)
    return Ahead(changed, tuple(first.operations))


def names_of(operation: Operation) -> set[str]:
    return {operand.name for operand in operation.inputs() if isinstance(operand, Value)}


def cone_of(again: Operand, definitions: dict[str, Operation]) -> list[Operation]:
    """The operations of the block behind the condition, in order."""
    order: dict[str, Operation] = {}

    def visit(operand: Operand) -> None:
        if isinstance(operand, Value) and operand.name in definitions and operand.name not in order:
            for source in definitions[operand.name].inputs():
                visit(source)
            order[operand.name] = definitions[operand.name]

    visit(again)
    return list(order.values())


class Copy:
    """Writes operations, to `operations`, with carried values replaced; sums of sums with constants are joined."""

    def __init__(
        self,
        replaced: dict[str, Operand],
        prefix: str,
        definitions: dict[str, Operation],
        operations: list[Operation],
    ) -> None:
        self.replaced = dict(replaced)
        self.prefix = prefix
        self.definitions = definitions
        self.operations = operations

    def operand(self, operand: Operand) -> Operand:
        return self.replaced.get(operand.name, operand) if isinstance(operand, Value) else operand

    def add(self, operation: Operation) -> None:
        assert operation.result is not None
        result = Value(f"{self.prefix}.{operation.result.name}", operation.result.width)
        operands = self.joined(operation.opcode, tuple(self.operand(operand) for operand in operation.operands))
        self.operations.append(replace(operation, result=result, operands=operands))
        self.replaced[operation.result.name] = result

    def joined(self, opcode: Opcode, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """(x + c) + d as x + (c + d)."""
        if opcode is not Opcode.ADD or not isinstance(operands[1], Const) or not isinstance(operands[0], Value):
            return operands
        inner = self.definitions.get(operands[0].name)
        if inner is None or inner.opcode is not Opcode.ADD or not isinstance(inner.operands[1], Const):
            return operands
        total = inner.operands[1].bits + operands[1].bits
        return inner.operands[0], Const(operands[1].width, total & ((1 << operands[1].width) - 1))
