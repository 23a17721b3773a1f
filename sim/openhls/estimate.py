# SPDX-License-Identifier: Apache-2.0
"""Area of a design on UltraScale+ as Yosys counts it, module by module.

An estimate: no place and route, nothing shared or removed across modules. Logic is mapped for the smallest area within
the levels of LUTs that a 300 MHz clock has time for by the table of delays. LUTs of one or two inputs share
places with others. Memory counts as what Yosys infers: LUT RAM, block RAM and UltraRAM cells, for UltraRAM
with the multiplexers between its blocks in LUTs.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from openhls.backend import delays, simulate

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
# Synthesis as synth_xilinx has it, but for the mapping to LUTs: that one is for the least depth, whatever it takes.
_LEVELS = int(delays.budget(300.0) / delays.LEVEL)
_MAP_LUTS = f"""
synth_xilinx -family xcup -noiopad -noclkbuf -top {{top}} -run :map_luts
opt_expr -mux_undef -noclkinv
abc -luts 2:2,3,6:5,10,20 -script "+strash;&get,-n;&fraig,-x;&put;scorr;dc2;dch,-f;if,-D,{_LEVELS};mfs2"
clean
techmap -map +/xilinx/ff_map.v
xilinx_srl -fixed -minlen 3
techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6
xilinx_dffopt
opt_lut_ins -tech xilinx
clean
"""
_LOGIC = re.compile(r"LUT[1-6]")
_REGISTER = re.compile(r"FD[RSCP]E(_1)?")
_BLOCKS = {"DSP48E2": ("DSP", 1.0), "RAMB36E2": ("BRAM", 1.0), "RAMB18E2": ("BRAM", 0.5), "URAM288": ("URAM", 1.0)}
_CARRIES = {"CARRY4": 4, "CARRY8": 8}


def estimate(folder: Path, top: str) -> dict[str, object]:
    """Area of the design in `folder`/rtl: `total`, `modules` by name with how often each is used, and the tool.

    LUT counts logic and LUTRAM; BRAM is in blocks of 36 Kb; CARRY in bits. Raises ToolError.
    """
    cells, version = synthesise(sorted((folder / "rtl").glob("*.sv")), top)
    uses = count_uses(cells, top)
    areas = {name: area_of(cells[name]) for name in uses}
    total: Counter[str] = Counter()
    for name, count in uses.items():
        total.update({key: value * count for key, value in areas[name].items()})
    modules: dict[str, Area] = {}
    for name, area in areas.items():
        modules[_unique(readable(name), modules)] = area | {"uses": uses[name]}
    return {"tool": version, "total": _tidy(dict(total)), "modules": {name: _tidy(a) for name, a in modules.items()}}


def synthesise(files: list[Path], top: str) -> tuple[dict[str, Counter[str]], str]:
    """Cells by type of each module, hierarchy kept, and Yosys' name and version."""
    if not files:
        raise simulate.ToolError(f"there is no RTL of {top}: build it first")
    if shutil.which("yosys") is None:
        raise simulate.ToolError("Yosys is missing: apt install yosys")
    with tempfile.TemporaryDirectory(prefix="openhls-") as name:
        report = Path(name) / "stat.json"
        sources = " ".join(str(file) for file in files)
        script = Path(name) / "script.ys"
        script.write_text(f"read_verilog -sv {sources}\n{_MAP_LUTS.format(top=top)}tee -q -o {report} stat -json\n")
        simulate.run(["yosys", "-q", script])
        text = report.read_text() if report.exists() else ""
    found = re.search(r'"modules"\s*:\s*', text)
    if found is None:
        raise simulate.ToolError("Yosys ended without counting cells")
    # What follows the modules is no JSON in older versions.
    modules, _ = json.JSONDecoder().raw_decode(text, found.end())
    cells = {name.lstrip("\\"): Counter(entry["num_cells_by_type"]) for name, entry in modules.items()}
    version = re.search(r'"creator"\s*:\s*"(Yosys [\w.+]+)', text)
    return cells, version.group(1) if version else "Yosys"


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
            raise simulate.ToolError(f"Yosys maps to {cell}, whose area is not known here")
    return area


def packed_luts(cells: Counter[str]) -> int:
    """Places of LUTs: those of one or two inputs share one with another of up to five, unless a carry takes it."""
    ones, twos, threes, fours, fives, sixes = (cells[f"LUT{inputs}"] for inputs in range(1, 7))
    carries = min(twos, sum(bits * cells[cell] for cell, bits in _CARRIES.items()))
    twos -= carries
    ones -= (shared := min(ones, fives + fours + threes))
    twos -= min(twos, fours + threes - max(0, shared - fives))
    return carries + threes + fours + fives + sixes + (ones + twos + 1) // 2


def readable(name: str) -> str:
    """A module's own name, without the parameters that Yosys adds to it."""
    parts = [part for part in re.split(r"[\\$]", name) if part]
    return next((part for part in parts if part != "paramod" and not re.fullmatch(r"[0-9a-f]{40}", part)), name)


def _unique(name: str, taken: dict[str, Area]) -> str:
    number = 1
    while (found := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return found


def _tidy(area: Area) -> Area:
    """Whole numbers as such."""
    return {key: int(value) if float(value).is_integer() else value for key, value in area.items()}
