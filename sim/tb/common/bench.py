# SPDX-License-Identifier: Apache-2.0
"""Clock, reset, and one turn per cycle for each agent around the design; and a watchdog that detects a stall."""

from __future__ import annotations

from typing import Any, Protocol

from cocotb.clock import Clock
from cocotb.handle import Immediate
from cocotb.triggers import RisingEdge

from tb.common.fifos import Fifo, find_fifos

CLOCK_NS = 2
RESET_CYCLES = 4
PATIENCE = 5000  # cycles without a word; a test adds the cycles that the kernel may compute without one


class ProtocolError(AssertionError):
    """The design broke a rule of AXI."""


class StalledError(AssertionError):
    """No word moved for as many cycles as the bench's patience. The message names ports and FIFOs that wait."""


class Agent(Protocol):
    """A model that is connected to pins of the design."""

    def turn(self) -> bool:
        """Called just before a rising edge: read the pins and set them for the next cycle. True if a word moved."""

    def reset(self) -> None:
        """Called while the design is in reset: forget all words in flight."""

    def state(self) -> str:
        """The state as text for the report of a stall; empty if it does not help."""


class Bench:
    """A design and the agents around it. The pins are seen as they are just before a rising edge."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.cycle = 0
        self.agents: list[Agent] = []
        self.fifos: list[Fifo] = find_fifos(dut)
        self.patience = PATIENCE
        self._quiet = 0
        self._edge = RisingEdge(dut.ap_clk)
        dut.ap_rst_n.value = Immediate(0)  # pins begin with random bits: reset before the first edge
        dut.ap_clk.value = Immediate(0)
        Clock(dut.ap_clk, CLOCK_NS, "ns").start(start_high=False)

    async def reset(self) -> None:
        self.dut.ap_rst_n.value = 0
        for agent in self.agents:
            agent.reset()
        for _ in range(RESET_CYCLES):
            await self._edge
        self.dut.ap_rst_n.value = 1
        self._quiet = 0
        await self.step()

    async def step(self) -> None:
        """One cycle. Raises StalledError, and ProtocolError of the agents."""
        await self._edge
        self.cycle += 1
        moved = False
        for agent in self.agents:
            moved |= agent.turn()
        self._quiet = 0 if moved else self._quiet + 1
        if self._quiet > self.patience:
            raise StalledError(self._report())

    async def steps(self, cycles: int) -> None:
        for _ in range(cycles):
            await self.step()

    def _report(self) -> str:
        ports = [text for agent in self.agents if (text := agent.state())]
        waiting = [text for fifo in self.fifos if (text := fifo.state())]
        return "\n  ".join([f"no word moved for {self.patience} cycles", *ports, *waiting])
