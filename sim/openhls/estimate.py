# SPDX-License-Identifier: Apache-2.0
"""Area of a design on UltraScale+ as Yosys counts it, module by module.

An estimate: no place and route, nothing shared or removed across modules. Logic is mapped for the smallest area within
the levels of LUTs that a 300 MHz clock has time for by the table of delays. LUTs of one or two inputs share
places with others. Memory counts as what Yosys infers: LUT RAM, block RAM and UltraRAM cells, for UltraRAM
with the multiplexers between its blocks in LUTs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openhls.cosim.simulate import ToolError
from openhls.synthesis import readable, synthesise

Area = dict[str, float]

# LUTs that a memory or shift register takes in a slice.
_MEMORY_LUTS = {
    "SRL16E": 1,
    "SRLC32E": 1,
    "RAM32X1S": 1,
    "RAM64X1S": 1,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
}
_LOGIC = re.compile(r"LUT[1-6]")
_REGISTER = re.compile(r"FD[RSCP]E(_1)?")
_BLOCKS = {"DSP48E2": ("DSP", 1.0), "RAMB36E2": ("BRAM", 1.0), "RAMB18E2": ("BRAM", 0.5), "URAM288": ("URAM", 1.0)}
_CARRIES = {"CARRY4": 4, "CARRY8": 8}


def estimate(
    folder: Path, top: str, *, cache: Path | None = None, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Area of the design in `folder`/rtl: `total`, `modules` by name with how often each is used, and the tool.

    LUT counts logic and LUTRAM; BRAM is in blocks of 36 Kb; CARRY in bits. `fast` names the modules that were too large
    for the thorough mapping. `cache` keeps what was synthesised. Raises ToolError.
    """
    found, version = synthesise(sorted((folder / "rtl").glob("*.sv")), top, cache=cache, progress=progress)
    uses = count_uses({name: module.cells for name, module in found.items()}, top)
    areas = {name: area_of(found[name].cells) for name in uses}
    total: Counter[str] = Counter()
    for name, count in uses.items():
        total.update({key: value * count for key, value in areas[name].items()})
    modules: dict[str, Area] = {}
    for name, area in areas.items():
        modules[_unique(readable(name), modules)] = area | {"uses": uses[name]}
    fast = sorted({readable(name) for name in uses if found[name].mapping == "fast"})
    return {
        "tool": version,
        "total": _tidy(dict(total)),
        "modules": {name: _tidy(a) for name, a in modules.items()},
        **({"fast": fast} if fast else {}),
    }


def count_uses(cells: dict[str, Counter[str]], top: str) -> dict[str, int]:
    """How often each module is in the design."""
    uses: Counter[str] = Counter()

    def visit(name: str, times: int) -> None:
        uses[name] += times
        for cell, count in cells[name].items():
            if cell.lstrip("\\") in cells:
                visit(cell.lstrip("\\"), times * count)

    visit(top, 1)
    return dict(uses)


def area_of(cells: Counter[str]) -> Area:
    """What the cells of one module take."""
    area = dict.fromkeys(("LUT", "LUTRAM", "FF", "CARRY", "DSP", "BRAM", "URAM"), 0.0)
    area["LUT"] = packed_luts(cells)
    for cell, count in cells.items():
        if _LOGIC.fullmatch(cell):
            continue
        if cell in _MEMORY_LUTS:
            area["LUT"] += count * _MEMORY_LUTS[cell]
            area["LUTRAM"] += count * _MEMORY_LUTS[cell]
        elif _REGISTER.fullmatch(cell):
            area["FF"] += count
        elif cell in _CARRIES:
            area["CARRY"] += count * _CARRIES[cell]
        elif cell in _BLOCKS:
            resource, share = _BLOCKS[cell]
            area[resource] += count * share
        elif cell.startswith(("RAM", "SRL", "FD", "LD", "URAM", "DSP")):
            raise ToolError(f"Yosys maps to {cell}, whose area is not known here")
    return area


def packed_luts(cells: Counter[str]) -> int:
    """Places of LUTs: those of one or two inputs share one with another of up to five, unless a carry takes it."""
    ones, twos, threes, fours, fives, sixes = (cells[f"LUT{inputs}"] for inputs in range(1, 7))
    carries = min(twos, sum(bits * cells[cell] for cell, bits in _CARRIES.items()))
    twos -= carries
    ones -= (shared := min(ones, fives + fours + threes))
    twos -= min(twos, fours + threes - max(0, shared - fives))
    return carries + threes + fours + fives + sixes + (ones + twos + 1) // 2


def _unique(name: str, taken: dict[str, Area]) -> str:
    number = 1
    while (found := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return found


def _tidy(area: Area) -> Area:
    """Whole numbers as such."""
    return {key: int(value) if float(value).is_integer() else value for key, value in area.items()}
