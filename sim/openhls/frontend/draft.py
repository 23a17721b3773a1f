# SPDX-License-Identifier: Apache-2.0
"""A function on its way to a process: its operations so far, and what its LLVM values have become."""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.errors import Unsupported
from openhls.frontend.context import Context
from openhls.frontend.llvm.module import Local, Module, Number
from openhls.frontend.llvm.module import Operand as LlvmOperand
from openhls.frontend.pragmas import Notes
from openhls.frontend.simplifier import Simplifier
from openhls.ir import Const, Opcode, Operand, Value
from openhls.names import Names


@dataclass
class Draft:
    """`name` is that of the process. `values` are by LLVM name, pointers not among them; `reserved` are the names of
    parameters in the process; `variables` are those of the process that it becomes; `loops` are the numbers of the
    loops around what is being lowered."""

    module: Module
    context: Context
    notes: Notes
    name: str
    names: Names = field(default_factory=Names)
    values: dict[str, Operand] = field(default_factory=dict)
    reserved: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    loops: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.builder = Simplifier(self.names.fresh)
        for parameter, _ in self.context.function.parameters:
            self.reserved[parameter] = self.names.fresh(parameter.removesuffix(".coerce"))

    def define(self, name: str, value: Operand) -> None:
        """What an LLVM value has become."""
        self.values[name] = value
        variable = self.context.function.value_names.get(name)
        if variable and isinstance(value, Value):
            self.variables.setdefault(value.name, variable)

    def operand(self, operand: LlvmOperand) -> Operand:
        """The operand of a number. Raises Unsupported for an address."""
        if isinstance(operand, Number):
            return Const(operand.width, operand.bits)
        if isinstance(operand, Local) and operand.name in self.values:
            return self.values[operand.name]
        raise self.address_as_value()

    def merged(self, old: Operand, part: Operand, low: int) -> Operand:
        """`old` with `part` in its bits from `low` on."""
        pieces = [part]
        high = low + part.width
        if high < old.width:
            pieces.insert(0, self.builder.make(Opcode.EXTRACT, old.width - high, old, low=high))
        if low:
            pieces.append(self.builder.make(Opcode.EXTRACT, low, old))
        return self.builder.make(Opcode.CONCAT, old.width, *pieces)

    def address_as_value(self) -> Unsupported:
        return Unsupported(self.builder.location, "an address used as a value", "use an array and an index")
