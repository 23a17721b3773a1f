# SPDX-License-Identifier: Apache-2.0
"""A kernel's registers: write arguments, start, wait for the interrupt, read results."""

from __future__ import annotations

import json
from pathlib import Path

from tb.common.axi_lite import AxiLite
from tb.common.bench import Bench

CONTROL, GLOBAL, ENABLE, PENDING = 0x00, 0x04, 0x08, 0x0C
START, DONE, IDLE, READY, AUTO_RESTART = 1, 2, 4, 8, 128


class Control:
    """Offsets and widths come from registers.json. `cycles`: cycles of each job since `start`, including ap_done."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        described = json.loads((folder / "registers.json").read_text())
        self.bus = AxiLite(bench, described["port"])
        self.registers = {one["name"]: one for one in described["registers"]}
        self.cycles: list[int] = []
        self._bench = bench
        self._interrupt = bench.dut.interrupt
        self._start, self._ended = bench.dut.ap_start, bench.dut.ended
        self._began: int | None = None
        self._running = False
        bench.agents.append(self)

    def reset(self) -> None:
        self._running, self._began = False, None

    def turn(self) -> bool:
        """Count the cycles of a job from ap_start to ap_done, without those of the register bus."""
        if not self._running:
            return False
        if self._began is None:
            self._began = self._bench.cycle if int(self._start.value) else None
        elif int(self._ended.value):
            self.cycles.append(self._bench.cycle - self._began + 1)
            self._began = None
            return True
        return False

    def state(self) -> str:
        return "the job has not ended" if self._running else ""

    async def enable_interrupt(self) -> None:
        await self.bus.write(GLOBAL, 1)
        await self.bus.write(ENABLE, 1)

    async def put(self, name: str, value: int) -> None:
        """Write all words of an argument."""
        one = self.registers[name]
        for low in range(0, one["width"], 32):
            await self.bus.write(one["offset"] + low // 8, value >> low & 0xFFFFFFFF)

    async def get(self, name: str) -> int:
        """Read all words of a register, as an unsigned number."""
        one = self.registers[name]
        value = 0
        for low in range(0, one["width"], 32):
            value |= await self.bus.read(one["offset"] + low // 8) << low
        return value

    async def start(self, flags: int = START) -> None:
        self._running, self._began, self.cycles = True, None, []
        await self.bus.write(CONTROL, flags)

    async def interrupted(self) -> None:
        """Wait for the interrupt of a started job and clear it."""
        while not int(self._interrupt.value):
            await self._bench.step()
        assert await self.bus.read(PENDING) == 1, "the interrupt is not that of the end of the job"
        await self.bus.write(PENDING, 1)
        assert not int(self._interrupt.value), "the interrupt stays after it was taken back"

    async def finish(self) -> None:
        """Wait for the interrupt of the last job. The registers must show that the kernel is idle."""
        await self.interrupted()
        self._running = False
        assert await self.bus.read(CONTROL) == DONE | IDLE | READY, "ap_ctrl does not say done, idle, ready"
        assert await self.bus.read(CONTROL) == IDLE, "reading does not clear ap_done and ap_ready"
