# SPDX-License-Identifier: Apache-2.0
"""Yosys on a design, one module after the other, the modules inside it as black boxes.

So a large design takes as long as its modules do, a module of the same text is synthesised once (`cache`), and one that
is too large for the thorough mapping to LUTs in its time gets a fast one, which takes more of them. Small modules share
a run of Yosys, whose start takes longer than they do.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from openhls.cosim import simulate
from openhls.schedule.target import target_of

# Synthesis as synth_xilinx has it, but for the mapping to LUTs: that one is for the least depth, whatever it takes.
_DEFAULT = target_of(300.0)
_LEVELS = int(_DEFAULT.budget / _DEFAULT.delays.level)
_MAPPINGS = {
    "thorough": f"+strash;&get,-n;&fraig,-x;&put;scorr;dc2;dch,-f;if,-D,{_LEVELS};mfs2",
    "fast": f"+strash;&get,-n;&fraig,-x;&put;dc2;if,-D,{_LEVELS}",
}
_PREPARE = """
read_rtlil {source}
read_verilog -lib -specify +/xilinx/cells_sim.v
read_verilog -lib +/xilinx/cells_xtra.v
synth_xilinx -family xcup -noiopad -noclkbuf -run prepare:map_luts
write_rtlil {prepared}
"""
_MAP = """
read_rtlil {prepared}
read_verilog -lib -specify +/xilinx/cells_sim.v
read_verilog -lib +/xilinx/cells_xtra.v
opt_expr -mux_undef -noclkinv
abc -luts 2:2,3,6:5,10,20 -script "{mapping}"
clean
techmap -map +/xilinx/ff_map.v
xilinx_srl -fixed -minlen 3
techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6
xilinx_dffopt
opt_lut_ins -tech xilinx
clean
tee -q -o {report} stat -json
"""
_SMALL = 100_000  # characters of RTLIL
_HEADER = re.compile(r"^module (\S+)\n", re.MULTILINE)
_PORT = re.compile(r"^  wire .*\b(?:input|output|inout) \d+.*$", re.MULTILINE)
_CELL = re.compile(r"^  cell (\S+) ", re.MULTILINE)


@dataclass(frozen=True)
class Synthesised:
    """Cells of a module by their type, and how its logic was mapped: `thorough` or `fast`."""

    cells: Counter[str]
    mapping: str


def synthesise(
    files: list[Path],
    top: str,
    *,
    cache: Path | None = None,
    limit_s: float = 600.0,
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, Synthesised], str]:
    """Each module of a design and Yosys' name and version. `limit_s`: seconds of processor time for the thorough
    mapping of a module. Raises ToolError.
    """
    if not files:
        raise simulate.ToolError(f"there is no RTL of {top}: build it first")
    if shutil.which("yosys") is None:
        raise simulate.ToolError("Yosys is missing: apt install yosys")
    version = " ".join(simulate.run(["yosys", "-V"]).split()[:2])
    with tempfile.TemporaryDirectory(prefix="openhls-") as name:
        scratch = Path(name)
        texts = _elaborate(files, top, scratch)
        by_stem = {file.stem: file.read_text() for file in files}
        keys = {module: _key(by_stem.get(readable(module), ""), module, version) for module in texts}
        found = {module: known for module in texts if (known := _load(cache, keys[module])) is not None}

        def work(batch: list[str]) -> dict[str, Synthesised]:
            done = _synthesise(batch, texts, scratch / keys[batch[0]], limit_s)
            for module, result in done.items():
                _save(cache, keys[module], result)
                progress(f"{readable(module)}: {sum(result.cells.values()):,} cells, {result.mapping} mapping")
            return done

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in pool.map(work, _batches([module for module in texts if module not in found], texts)):
                found |= done
    return {module.lstrip("\\"): result for module, result in found.items()}, version


def readable(name: str) -> str:
    """A module's own name, without the parameters that Yosys adds to it."""
    parts = [part for part in re.split(r"[\\$]", name) if part]
    return next((part for part in parts if part != "paramod" and not re.fullmatch(r"[0-9a-f]{40}", part)), name)


def _elaborate(files: list[Path], top: str, scratch: Path) -> dict[str, str]:
    """RTLIL of the modules by name, each with its own parameters."""
    whole = scratch / "design.il"
    sources = " ".join(str(file) for file in files)
    script = f"read_verilog -sv {sources}; hierarchy -check -top {top}; write_rtlil {whole}"
    simulate.run(["yosys", "-q", "-p", script])
    _, *parts = _HEADER.split(whole.read_text())
    return {name: body[: body.index("\nend\n") + 5] for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _batches(modules: list[str], texts: dict[str, str]) -> list[list[str]]:
    """The large modules, each alone, largest first; then the small ones."""
    large = sorted((module for module in modules if len(texts[module]) > _SMALL), key=lambda name: -len(texts[name]))
    small = [module for module in modules if len(texts[module]) <= _SMALL]
    return [[module] for module in large] + ([small] if small else [])


def _synthesise(batch: list[str], texts: dict[str, str], folder: Path, limit_s: float) -> dict[str, Synthesised]:
    folder.mkdir()
    source, prepared, report = folder / "modules.il", folder / "prepared.il", folder / "stat.json"
    inside = {name for module in batch for name in _CELL.findall(texts[module]) if name in texts}
    boxes = (
        f"attribute \\blackbox 1\nmodule {name}\n{_ports(texts[name])}\nend\n" for name in sorted(inside - {*batch})
    )
    bodies = [f"module {module}\n{texts[module]}" for module in batch]
    # Names that Yosys makes up are numbered: those to come begin behind those that are there.
    first = 1 + max(int(number) for body in ["$0", *bodies] for number in re.findall(r"\$(\d+)\b", body))
    source.write_text(f"autoidx {first}\n{''.join(boxes)}{''.join(bodies)}")
    _yosys(_PREPARE.format(source=source, prepared=prepared), folder, None)
    for mapping, script in _MAPPINGS.items():
        limit = limit_s if mapping == "thorough" else None
        if _yosys(_MAP.format(prepared=prepared, mapping=script, report=report), folder, limit):
            cells = _cells(report)
            return {module: Synthesised(cells[module], mapping) for module in batch}
    raise simulate.ToolError(f"Yosys did not map {readable(batch[0])}")


def _ports(body: str) -> str:
    parameters = (line for line in body.splitlines() if line.startswith("  parameter "))
    return "\n".join([*parameters, *_PORT.findall(body)])


def _yosys(script: str, folder: Path, limit_s: float | None) -> bool:
    """False where the processor time of the whole run, ABC's with it, was over before the end."""
    path = folder / "script.ys"
    path.write_text(script)
    if limit_s is None:
        simulate.run(["yosys", "-q", path])
        return True
    limited = f"ulimit -t {max(1, round(limit_s))} && exec yosys -q {path}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return True
    if "return code" in done.stderr + done.stdout or done.returncode < 0:
        return False
    raise simulate.ToolError(f"yosys failed\n{(done.stderr + done.stdout)[-6000:].strip()}")


def _cells(report: Path) -> dict[str, Counter[str]]:
    text = report.read_text() if report.exists() else ""
    found = re.search(r'"modules"\s*:\s*', text)
    if found is None:
        raise simulate.ToolError("Yosys ended without counting cells")
    # What follows the modules is no JSON in older versions.
    modules, _ = json.JSONDecoder().raw_decode(text, found.end())
    return {name: Counter(entry["num_cells_by_type"]) for name, entry in modules.items()}


def _key(text: str, module: str, version: str) -> str:
    code = re.sub(r"//.*|\$fatal.*", "", text)  # both name lines of C++, which move
    parts = (code, module, version, _PREPARE, _MAP, *_MAPPINGS.values())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _load(cache: Path | None, key: str) -> Synthesised | None:
    if cache is None or not (path := cache / f"{key}.json").exists():
        return None
    stored = json.loads(path.read_text())
    return Synthesised(Counter(stored["cells"]), stored["mapping"])


def _save(cache: Path | None, key: str, result: Synthesised) -> None:
    if cache is None:
        return
    cache.mkdir(parents=True, exist_ok=True)
    partial = cache / f"{key}.{os.getpid()}"
    partial.write_text(json.dumps({"cells": result.cells, "mapping": result.mapping}))
    partial.replace(cache / f"{key}.json")
