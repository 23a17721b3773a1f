# SPDX-License-Identifier: Apache-2.0
"""Exit conditions of loops that look at streams, an iteration ahead for every answer.

`while (got < n) if (in.read_nb(word)) ++got;` knows only within the cycle whether another iteration follows. What does
not depend on the answer is worked out in the iteration before, once for each answer of both iterations; when the
condition is needed, the answer only chooses between registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from openhls.ir import (
    COMPARISONS,
    FALSE,
    PREDICATED,
    TRUE,
    Block,
    Carried,
    Const,
    Loop,
    Opcode,
    Operand,
    Operation,
    Value,
    definitions_of,
)
from openhls.passes.look_ahead import Ahead
from openhls.passes.narrowing.emitter import Emitter

LOOKS = frozenset({Opcode.EMPTY, Opcode.FULL})
MOST_LOOKS = 2  # in the condition of a loop


def answer_ahead(loop: Loop) -> Ahead | None:
    """The innermost `loop` with its condition carried, and the operations that give the first ones.

    None if the condition depends on no answer, on more than MOST_LOOKS, or on a word or an element.
    """
    (block,) = loop.body
    assert isinstance(block, Block)
    definitions = definitions_of(block.operations)
    needed = sources_of([loop.again], definitions)
    items = [item for item in loop.carried if item.value.name in needed]
    needed |= sources_of([item.following for item in items], definitions)
    inner = [definitions[name] for name in needed if name in definitions]
    looks = [look.result for look in inner if look.opcode in LOOKS and look.result is not None]
    if not items or not 0 < len(looks) <= MOST_LOOKS or len(looks) < len(inner):
        return None
    answers = [dict(zip((look.name for look in looks), bits, strict=True)) for bits in choices(len(looks))]
    first = Answers(f"{loop.label}_first", definitions)
    body = Answers(f"{loop.label}_ahead", definitions)
    moved = [{item.value.name: body.copied(item.following, answer) for item in items} for answer in answers]
    carried = []
    for number, answer in enumerate(answers):
        initial = first.copied(loop.again, {item.value.name: item.initial for item in items} | answer)
        following = body.chosen(looks, [body.copied(loop.again, values | answer) for values in moved])
        carried.append(Carried(Value(f"{loop.label}_again_{number}", 1), initial, following))
    again = body.chosen(looks, [item.value for item in carried])
    changed = replace(
        loop,
        carried=(*loop.carried, *carried),
        body=(replace(block, operations=(*block.operations, *body.operations)),),
        again=again,
    )
    return Ahead(changed, tuple(first.operations))


def choices(count: int) -> list[tuple[Operand, ...]]:
    """All answers to so many questions, in the order of `Answers.chosen`."""
    return list(product((FALSE, TRUE), repeat=count))


def sources_of(operands: Sequence[Operand], definitions: dict[str, Operation]) -> dict[str, None]:
    """The values that operations without an effect make `operands` of: from outside the block, or of accesses."""
    found: dict[str, None] = {}
    pending, seen = list(operands), set[str]()
    while pending:
        operand = pending.pop()
        if isinstance(operand, Const) or operand.name in seen:
            continue
        seen.add(operand.name)
        source = definitions.get(operand.name)
        if source is None or source.opcode in PREDICATED:
            found[operand.name] = None
        else:
            pending += source.operands
    return found


class Answers(Emitter):
    """Writes values of the loop again, with some of the values they are made of replaced."""

    def __init__(self, name: str, origins: dict[str, Operation]) -> None:
        super().__init__(())
        self.name, self.origins = name, origins

    def copied(self, operand: Operand, known: dict[str, Operand]) -> Operand:
        """`operand` with the values `known` in place of those of these names."""
        made = dict(known)

        def copy(each: Operand) -> Operand:
            if isinstance(each, Const) or (each.name not in made and each.name not in self.origins):
                return each
            if each.name not in made:
                source = self.origins[each.name]
                self.location = source.location
                made[each.name] = self.written(source, [copy(operand) for operand in source.operands])
            return made[each.name]

        return copy(operand)

    def chosen(self, looks: Sequence[Value], values: Sequence[Operand]) -> Operand:
        """The one of `values` that belongs to the answers of `looks`."""
        if not looks:
            return values[0]
        half = len(values) // 2
        return self.select(looks[0], self.chosen(looks[1:], values[half:]), self.chosen(looks[1:], values[:half]))

    def written(self, origin: Operation, operands: list[Operand]) -> Operand:
        opcode, width = origin.opcode, operands[0].width
        assert origin.result is not None
        match opcode:
            case Opcode.ADD:
                return self.sum(*operands)
            case Opcode.SUB if isinstance(operands[1], Const):
                return self.sum(operands[0], Const(width, -operands[1].bits & ((1 << width) - 1)))
            case Opcode.AND | Opcode.OR | Opcode.XOR:
                return self.bitwise(opcode, *operands)
            case Opcode.SELECT:
                return self.select(*operands)
            case Opcode.ZEXT | Opcode.SEXT:
                return self.extend(operands[0], origin.result.width, opcode is Opcode.SEXT)
            case Opcode.EXTRACT:
                return self.extract(operands[0], origin.low, origin.result.width)
            case Opcode.CONCAT:
                return self.concat(*operands)
            case _ if opcode in COMPARISONS:
                return self.compare(opcode, *operands)
        return self.fold(opcode, origin.result.width, *operands, low=origin.low)

    def sum(self, a: Operand, b: Operand) -> Operand:
        """(x + c) + d as x + (c + d)."""
        if isinstance(a, Const):
            a, b = b, a
        inner = self.definition(a, Opcode.ADD)
        if isinstance(b, Const) and inner is not None and isinstance(inner.operands[1], Const):
            a, b = inner.operands[0], Const(b.width, (b.bits + inner.operands[1].bits) & ((1 << b.width) - 1))
        return self.add(a, b)
