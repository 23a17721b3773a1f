# SPDX-License-Identifier: Apache-2.0
"""What the LLVM values of a function have become."""

from __future__ import annotations

from openhls.errors import Unsupported
from openhls.frontend.builder import Builder
from openhls.frontend.llvm.module import Local, Number
from openhls.frontend.llvm.module import Operand as LlvmOperand
from openhls.ir import Const, Operand


class Operands:
    """`values` by LLVM name; pointers are not among them."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self.values: dict[str, Operand] = {}

    def of(self, operand: LlvmOperand) -> Operand:
        """The operand of a number. Raises Unsupported for an address."""
        if isinstance(operand, Number):
            return Const(operand.width, operand.bits)
        if isinstance(operand, Local) and operand.name in self.values:
            return self.values[operand.name]
        raise self.address_as_value()

    def address_as_value(self) -> Unsupported:
        return Unsupported(self._builder.location, "an address used as a value", "use an array and an index")
