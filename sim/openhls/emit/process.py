# SPDX-License-Identifier: Apache-2.0
"""A process becomes a module, a program a list of modules with the top last.

Ports of a process: `start` and `done` are pulses, one cycle long; arguments stay until `done`; outputs are valid from
`done` to the next `start`. `done` comes when all words that were written have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openhls.analysis.storage import storage_of
from openhls.emit.arrays import ArrayEnd
from openhls.emit.control import Controller, Scheduled
from openhls.emit.dataflow import module_name
from openhls.emit.datapath import Held, Surroundings
from openhls.emit.fifos import OwnFifos, own_fifos
from openhls.emit.netlist import Module, all_of, any_of, negate
from openhls.emit.overlap import overlaps_of
from openhls.emit.stream_ends import InputEnd, OutputEnd, make_end
from openhls.ir import Process, Program
from openhls.schedule.plan import Plan, Step
from openhls.schedule.target import Target


@dataclass(frozen=True)
class Built:
    """A process in hardware, and how its regions were scheduled."""

    process: Process
    module: Module
    scheduled: list[Scheduled]


def build_process(program: Program, process: Process, steps: Sequence[Step], target: Target, fifos: OwnFifos) -> Built:
    """The module of a process. Raises Unsupported for what the back end has no hardware for."""
    storages = {array.name: storage_of(array) for array in process.arrays}
    module = Module(module_name(process), f"{process.name}: {process.location}")
    start, done = module.input("start", 1), module.output("done", 1)
    held = Held()
    for scalar in process.scalars:
        held[scalar.name] = module.input(f"arg_{scalar.name}", scalar.width)
    ends = {s.name: make_end(module, s, fifos.get((process.name, s.name), 0), start) for s in process.streams}
    outputs = [(module.output(f"out_{name}", operand.width), operand) for name, operand in process.outputs]
    arrays = {name: ArrayEnd(storage, module) for name, storage in storages.items()}
    inputs = {name: end for name, end in ends.items() if isinstance(end, InputEnd)}
    written = {name: end for name, end in ends.items() if isinstance(end, OutputEnd)}
    overlaps = overlaps_of(process)
    doubled = {name for overlap in overlaps.values() for name in overlap.doubled}
    seconds = {name: ArrayEnd(storages[name].second(), module) for name in storages if name in doubled}
    around = Surroundings(module, held, inputs, written, arrays, fifos, target, start, seconds)
    controller = Controller(program, around, overlaps)
    last = controller.sequence(steps, start)
    for net, operand in outputs:
        module.assign(net, controller.operand(operand))
    for end in ends.values():
        end.finish(module)
    for array_end in (*arrays.values(), *seconds.values()):
        array_end.finish()
    ending = module.net("ending", 1)
    module.register(ending, any_of([last, all_of([ending, negate(done)])]), reset=0)
    module.assign(done, all_of([ending, *(end.left for end in written.values())]))
    return Built(process, module, controller.scheduled)


def build_program(program: Program, plan: Plan, target: Target) -> list[Built]:
    """All processes of a scheduled program, callees first."""
    fifos = own_fifos(program)
    return [build_process(program, each, plan[each.name], target, fifos) for each in program.processes.values()]
