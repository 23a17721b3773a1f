# SPDX-License-Identifier: Apache-2.0
"""A program as files: one SystemVerilog module per process, the top, the library, and the schedule report."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from openhls.emit.expect import Expectation, check_intervals
from openhls.emit.library import LIBRARY
from openhls.emit.outside import Uses, uses_of
from openhls.emit.process import build_program
from openhls.emit.registers import RegisterMap, register_map
from openhls.emit.report import RegionReport, as_json, as_text, report
from openhls.emit.top import build_top
from openhls.emit.verilog import module_text
from openhls.ir import (
    ArrayPort,
    Channels,
    Field,
    Life,
    Location,
    MemoryPort,
    Process,
    Program,
    State,
    calls_of,
    fifos_of,
)
from openhls.schedule.plan import Plan
from openhls.schedule.target import Target

HEADER = "// SPDX-License-Identifier: Apache-2.0\n// Written by openhls; edit the C++ instead.\n"


@dataclass(frozen=True)
class Design:
    """What was written. `files` are the modules of this design; beside them lie those that they use of the library."""

    top: str
    process: Process
    arguments: tuple[str, ...]
    memories: tuple[MemoryPort, ...]
    ports: tuple[ArrayPort, ...]
    states: tuple[State, ...]
    keeps_words: bool  # in a static stream, or in a task, from one job to the next
    of_tasks: frozenset[str]  # streams that tasks read or write, which go on when a job has ended
    uses: dict[str, Uses]  # of the arrays in `ports`
    channels: Mapping[str, Channels]
    stream_arrays: Mapping[str, tuple[str, ...]]
    sequences: Mapping[str, int]
    queues: tuple[Location, ...]
    layouts: Mapping[str, tuple[Field, ...]]
    registers: RegisterMap | None
    files: tuple[Path, ...]
    library: tuple[Path, ...]
    regions: tuple[RegionReport, ...]
    target: Target
    folder: Path

    def text(self) -> str:
        return as_text(list(self.regions), self.target)


def _with_relative_paths(text: str, sources: tuple[str, ...]) -> str:
    """Files outside the working folder as seen from the folder of the first one."""
    for source in sources:
        text = text.replace(source, os.path.relpath(source, Path(sources[0]).parent))
    return text


def _used(files: list[Path], library: list[Path]) -> list[Path]:
    """The files of the library with modules that `files` use, or other modules of the library that these use."""
    found: list[Path] = []
    pending = list(files)
    while pending:
        words = set(re.findall(r"\w+", re.sub(r"//.*", "", pending.pop().read_text())))
        added = [path for path in library if path.stem in words and path not in found]
        found += added
        pending += added
    return sorted(found)


def emit(
    program: Program, plan: Plan, top: str, out: Path, target: Target, expected: Expectation | None = None
) -> Design:
    """Write a scheduled program under `out`; `top` names the top module.

    Raises Unsupported for what has no hardware, Unexpected if the schedule is not as `expected`.
    """
    built = build_program(program, plan, target)
    regions = tuple(report(built, target))
    if expected is not None:
        check_intervals(regions, program.sources, expected)
    folder = out / "rtl"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    process = program.processes[program.top]
    modules = [*(one.module for one in built), *build_top(program, top)]
    files = []
    for module in modules:
        path = folder / f"{module.name}.sv"
        path.write_text(HEADER + _with_relative_paths(module_text(module), program.sources))
        files.append(path)
    library = tuple(Path(shutil.copy(source, folder)) for source in _used(files, list(LIBRARY)))
    registers = register_map(program)
    (out / "registers.json").write_text(json.dumps(registers.as_json() if registers else {}, indent=1) + "\n")
    (out / "schedule.json").write_text(json.dumps(as_json(list(regions)), indent=1) + "\n")
    arguments = program.arguments, program.memories, program.ports, program.states
    uses = {port.array: uses_of(program, process, port.array) for port in program.ports}
    streams = program.channels, program.stream_arrays, program.sequences
    fifos = (fifo for each in program.processes.values() for fifo in fifos_of(each.body))
    calls = [call for each in program.processes.values() for call in calls_of(each.body)]
    keeps_words = any(each.life is Life.PROGRAM for each in fifos) or any(each.task is Life.PROGRAM for each in calls)
    given = {name for each in calls if each.task is not None for _, name in each.streams}
    of_tasks = frozenset(each.name for each in process.streams if each.name in given)
    design = Design(
        *(top, process, *arguments, keeps_words, of_tasks, uses, *streams),
        *(program.queues, program.layouts, registers, tuple(files), library, regions, target, out),
    )
    (out / "schedule.txt").write_text(design.text() + "\n")
    return design
