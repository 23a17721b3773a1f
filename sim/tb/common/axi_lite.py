# SPDX-License-Identifier: Apache-2.0
"""An AXI4-Lite master: one access at a time, address and data in either order."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from tb.common.bench import Bench, ProtocolError
from tb.common.stalls import Gate


class AxiLite:
    """`gate` says in which cycles it offers and accepts words. A response other than OKAY is an error."""

    def __init__(self, bench: Bench, port: str) -> None:
        self._bench = bench
        self._pins: dict[str, Any] = {
            name: getattr(bench.dut, f"{port}_{name}")
            for channel, names in (
                ("AW", ("ADDR", "VALID", "READY")),
                ("W", ("DATA", "STRB", "VALID", "READY")),
                ("B", ("RESP", "VALID", "READY")),
                ("AR", ("ADDR", "VALID", "READY")),
                ("R", ("DATA", "RESP", "VALID", "READY")),
            )
            for name in (channel + part for part in names)
        }
        self.gate: Gate = repeat(True)
        bench.agents.append(self)
        self.reset()

    def reset(self) -> None:
        for channel in ("AW", "W", "AR"):
            self._pins[f"{channel}VALID"].value = 0
        for channel in ("B", "R"):
            self._pins[f"{channel}READY"].value = 0
        self._waiting: dict[str, dict[str, int]] = {}  # payloads that are not offered yet
        self._offered: set[str] = set()
        self._answer = ""
        self._accepting = False
        self._result: int | None = None

    async def write(self, address: int, data: int, strobe: int = 15) -> None:
        self._waiting = {"AW": {"ADDR": address}, "W": {"DATA": data, "STRB": strobe}}
        await self._done("B")

    async def read(self, address: int) -> int:
        self._waiting = {"AR": {"ADDR": address}}
        return await self._done("R")

    async def _done(self, answer: str) -> int:
        self._answer, self._result = answer, None
        while self._result is None:
            await self._bench.step()
        return self._result

    def turn(self) -> bool:
        if not self._answer:
            return False
        moved = False
        for channel in [name for name in self._offered if int(self._pins[f"{name}READY"].value)]:
            self._offered.discard(channel)
            self._pins[f"{channel}VALID"].value = 0
            moved = True
        for channel in list(self._waiting):
            if next(self.gate):
                for part, value in self._waiting.pop(channel).items():
                    self._pins[channel + part].value = value
                self._pins[f"{channel}VALID"].value = 1
                self._offered.add(channel)
        return self._take() or moved

    def _take(self) -> bool:
        """Take the response, in a cycle with READY. VALID must stay high until then."""
        valid, ready = self._pins[f"{self._answer}VALID"], self._pins[f"{self._answer}READY"]
        if self._accepting and int(valid.value):
            if int(self._pins[f"{self._answer}RESP"].value):
                raise ProtocolError(f"the registers answered {self._answer}RESP other than OKAY")
            self._result = int(self._pins["RDATA"].value) if self._answer == "R" else 0
            ready.value, self._accepting, self._answer = 0, False, ""
            return True
        if not self._waiting and not self._offered and not self._accepting and next(self.gate):
            ready.value, self._accepting = 1, True
        return False

    def state(self) -> str:
        return f"registers: no answer on {self._answer}" if self._answer else ""
