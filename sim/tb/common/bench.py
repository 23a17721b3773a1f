# SPDX-License-Identifier: Apache-2.0
"""Clock, reset, and one turn per cycle for everything around the design; a watchdog when nothing moves any more."""

from __future__ import annotations

from typing import Any, Protocol

from cocotb.clock import Clock
from cocotb.handle import Immediate
from cocotb.triggers import RisingEdge

from tb.common.fifos import Fifo, find_fifos

CLOCK_NS = 2
RESET_CYCLES = 4
PATIENCE = 5000  # cycles without a word; a test adds those for which a kernel may work on what it holds


class ProtocolError(AssertionError):
    """The design broke a rule of AXI."""


class StalledError(AssertionError):
    """No word moved for the whole of the bench's patience; the text names ports and FIFOs that wait."""


class Agent(Protocol):
    """Something at pins of the design."""

    def turn(self) -> bool:
        """Just before a rising edge: look at the pins, set them for the next cycle. True if a word moved."""

    def reset(self) -> None:
        """The design is in reset: nothing is on its way."""

    def state(self) -> str:
        """What it has seen, for a report of a stall; empty if that is of no interest."""


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
        dut.ap_rst_n.value = Immediate(0)  # pins begin with random bits: no edge may come before the reset
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
