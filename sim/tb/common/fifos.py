# SPDX-License-Identifier: Apache-2.0
"""The FIFOs of a design, seen through fifo_watch.sv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cocotb.handle import HierarchyObject


@dataclass(frozen=True)
class Fifo:
    """`name` is the path of the instance below the top; `rooms` watches the places that its writer reserves."""

    name: str
    watch: Any
    rooms: Any | None

    @property
    def depth(self) -> int:
        return int(self.watch.depth.value)

    @property
    def high_water(self) -> int:
        return int(self.watch.high_water.value)

    def state(self) -> str:
        """A text that says if the reader or the writer waits; "" if neither does."""
        level, depth = int(self.watch.level.value), self.depth
        refused = int(self.watch.in_valid.value) and not int(self.watch.in_ready.value)
        if refused or (self.rooms is not None and int(self.rooms.full.value)):
            return f"FIFO {self.name}: its writer waits, {level} of {depth} words"
        if level and not int(self.watch.out_ready.value):
            return f"FIFO {self.name}: nobody reads, {level} of {depth} words"
        if int(self.watch.out_ready.value) and not int(self.watch.out_valid.value):
            return f"FIFO {self.name}: its reader waits, it is empty"
        return ""


def find_fifos(dut: Any) -> list[Fifo]:
    """All FIFOs of the design, sorted by name."""
    found: list[Fifo] = []

    def walk(scope: Any, path: tuple[str, ...], rooms: Any | None) -> None:
        children = {child._name: child for child in scope if isinstance(child, HierarchyObject)}
        if "watch" in children:
            found.append(Fifo(".".join(path), children["watch"], rooms))
            return
        for name, child in children.items():
            walk(child, (*path, name), children.get("rooms"))

    walk(dut, (), None)
    return sorted(found, key=lambda fifo: fifo.name)
