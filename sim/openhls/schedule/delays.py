# SPDX-License-Identifier: Apache-2.0
"""Estimated delays of operations in a device, in nanoseconds. The numbers are in openhls/platforms.

Logic merges into the LUTs of the logic before it. So a function of n inputs is charged a fraction of a level, by the
logarithm to the inputs of a LUT, not a whole one: three gates of two inputs in a row cost little more than one LUT.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, log2

from openhls.ir import COMPARISONS, Const, Opcode, Operation

SMALL_PRODUCT = 36  # a product of at most so many bits times bits stays in LUTs


@dataclass(frozen=True)
class Cost:
    """`arrive` within a stage, then either `through` it combinationally, or `latency` stages later plus `through`."""

    through: float
    latency: int = 0
    arrive: float = 0.0


@dataclass(frozen=True)
class Delays:
    """Nanoseconds in a device. `dsp`: bits of the signed operands of its multiplier."""

    clock_to_q: float  # and the first net
    level: float  # one LUT and its net
    lut_inputs: int
    carry_start: float  # into the chain and out of it
    carry_bit: float
    ram_address: float  # net and set-up at an address or data input
    ram_data: float  # clock to data, block RAM without its output register
    ram_depth: int  # words of a block: deeper memories have a multiplexer behind their blocks; 0: never
    fifo_data: float  # clock, read pointer, LUT RAM
    handshake: float  # from a predicate, through the ready of all streams, to the enables of the stage
    dsp_input: float
    dsp_output: float
    uncertainty: float  # share of the period that is kept
    dsp: tuple[int, int]

    def budget(self, clock_mhz: float) -> float:
        """Nanoseconds of logic that fit between two registers."""
        return 1000.0 / clock_mhz * (1.0 - self.uncertainty)

    def logic(self, inputs: int) -> float:
        """A function of so many bits, in LUTs."""
        return self.level * log(max(inputs, 2), self.lut_inputs)

    def carry(self, width: float) -> float:
        return self.level + self.carry_start + self.carry_bit * width

    def memory(self, length: int) -> float:
        """From the clock to the data of a memory of so many words."""
        blocks = ceil(length / self.ram_depth) if self.ram_depth else 1
        return self.ram_data + (self.logic(blocks + ceil(log2(blocks))) if blocks > 1 else 0.0)

    def multiplier(self, a_width: int, b_width: int) -> Cost:
        """Unsigned operands take a bit less than the signed ones that a DSP multiplies. Small products are in LUTs."""
        small, large = sorted((a_width, b_width))
        if small <= 1:
            return Cost(self.level)
        if small * large <= SMALL_PRODUCT:
            return Cost(self.carry(small + large) + self.level * ceil(log2(small)))
        tiles = ceil(large / (self.dsp[0] - 1)) * ceil(small / (self.dsp[1] - 1))
        stages = 2 if tiles == 1 else 3 if tiles <= 2 else 4 + ceil(log2(tiles)) - 1
        return Cost(self.dsp_output, stages, self.dsp_input)

    def cost(self, operation: Operation, active: tuple[int, ...]) -> Cost:
        """The cost of an operation that is no access. `active` are the bits of its operands that can differ from a
        sign."""
        opcode, operands = operation.opcode, operation.operands
        width = operands[0].width
        constant = any(isinstance(operand, Const) for operand in operands[1:])
        inputs = sum(0 if isinstance(op, Const) else bits for op, bits in zip(operands, active, strict=True))
        match opcode:
            case Opcode.ZEXT | Opcode.SEXT | Opcode.EXTRACT | Opcode.CONCAT:
                return Cost(0.0)
            case Opcode.AND | Opcode.OR | Opcode.XOR if constant:
                return Cost(0.0)  # wiring, or an inversion that its user absorbs
            case Opcode.AND | Opcode.OR | Opcode.XOR:
                return Cost(self.logic(2))
            case Opcode.SELECT:
                return Cost(self.logic(3))
            case Opcode.ADD | Opcode.SUB:
                return Cost(min(self.carry(min(width, max(active) + 1)), self.logic(inputs)))
            case Opcode.SHL | Opcode.LSHR | Opcode.ASHR:
                return Cost(0.0 if constant else self.level * ceil(ceil(log2(max(width, 2))) / 2))
            case Opcode.EQ | Opcode.NE:
                return Cost(min(self.logic(inputs), self.carry(width / 3)))
            case _ if opcode in COMPARISONS:
                return Cost(min(self.logic(inputs), self.carry(width / 2)))
            case Opcode.MUL:
                return self.multiplier(active[0], active[1])
        raise ValueError(f"no delay for {opcode.value}")
