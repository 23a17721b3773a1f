# SPDX-License-Identifier: Apache-2.0
"""Processes that run at the same time: their instances, the FIFOs between them, and what they borrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from openhls.analysis.storage import Storage, storage_of
from openhls.emit.datapath import Surroundings
from openhls.emit.netlist import RESET, Net, Term, all_of, any_of, literal, negate
from openhls.emit.pulses import delayed, flag
from openhls.ir import Call, Dataflow, Direction, Fifo, Life, Operand, Process, Program


@dataclass
class Stages:
    """The hardware of a dataflow region. `operand` gives values of earlier regions."""

    program: Program
    around: Surroundings
    region: Dataflow
    operand: Callable[[Operand], Term]

    def build(self, begin: Net) -> Term:
        """Starts all processes with the pulse `begin`; returns the pulse that ends the last one."""
        module, region, name = self.around.module, self.region, self.region.label
        ends: dict[str, dict[str, Net]] = {}
        for fifo in region.fifos:
            ends[fifo.name] = self.fifo(fifo, begin)
        done: list[Term] = []
        for call in region.calls:
            start: Term = begin
            if call.after:
                ready = all_of([done[before] for before in call.after])
                started = module.net(f"{call.process}_started", 1)
                start = module.wire(f"{call.process}_starts", all_of([ready, negate(started)]))
                module.register(started, any_of([start, all_of([started, negate(begin)])]), reset=0)
            if call.task is None:
                done.append(self.call(call, begin, start, ends))
            else:
                self.task(call, begin, start, ends)
                done.append(literal(1, 0))  # no call is after a task
        finished = module.net(f"{name}_finished", 1)
        busy = flag(module, f"{name}_busy", begin, finished)
        ended = [bit for bit, call in zip(done, region.calls, strict=True) if call.task is None]
        module.assign(finished, all_of([busy, *ended]))
        return finished

    def task(self, call: Call, begin: Net, start: Term, fifos: dict[str, dict[str, Net]]) -> None:
        """An instance of a process that never ends: reset by each `start`, or started by the first one after a
        reset."""
        module, name = self.around.module, run_name(call)
        if call.task is Life.PROGRAM:
            begun = module.net(f"{name}_begun", 1)
            module.register(begun, any_of([start, begun]), reset=0)
            self.call(call, begin, all_of([start, negate(begun)]), fifos)
        else:
            later = delayed(module, f"{name}_made", start)
            self.call(call, begin, later, fifos, {"rst": any_of([RESET, start])})

    def fifo(self, fifo: Fifo, begin: Net) -> dict[str, Net]:
        """Its nets: wires where the buffer of the writer is the FIFO."""
        module = self.around.module
        parts = {"data": fifo.width, "valid": 1, "ready": 1}
        ends = {(call.process, stream) for call in self.region.calls for stream, to in call.streams if to == fifo.name}
        if ends & self.around.fifos.keys():
            wires = {part: module.net(f"{fifo.name}_{part}", width) for part, width in parts.items()}
            return {f"{side}_{part}": wire for part, wire in wires.items() for side in ("in", "out")}
        nets = {
            f"{side}_{part}": module.net(f"{fifo.name}_{side}_{part}", width)
            for side in ("in", "out")
            for part, width in parts.items()
        }
        empties: dict[Life, list[Term]] = {Life.REGION: [begin], Life.PROCESS: [self.around.start], Life.PROGRAM: []}
        module.instance(
            "openhls_fifo",
            f"{fifo.name}_fifo",
            {
                "rst": any_of([RESET, *empties[fifo.life]]),
                "in_data": nets["in_data"],
                "in_valid": nets["in_valid"],
                "out_ready": nets["out_ready"],
            },
            {"in_ready": nets["in_ready"], "out_data": nets["out_data"], "out_valid": nets["out_valid"]},
            f"{fifo.name}: {fifo.location}",
            WIDTH=fifo.width,
            DEPTH=fifo.depth,
        )
        return nets

    def call(
        self,
        call: Call,
        begin: Net,
        start: Term,
        fifos: dict[str, dict[str, Net]],
        more: Mapping[str, Term] = MappingProxyType({}),
    ) -> Net:
        """An instance of a process that starts with the pulse `start`; returns a bit that is 1 once it has ended.
        `more`: other inputs."""
        module = self.around.module
        callee = self.program.processes[call.process]
        name = run_name(call)
        inputs: dict[str, Term] = {"start": start, **more}
        done = module.net(f"{name}_done", 1)
        outputs: dict[str, Net] = {"done": done}
        for scalar, operand in call.scalars:
            inputs[f"arg_{scalar}"] = self.given(operand)
        for stream in callee.streams:
            bound = dict(call.streams)[stream.name]
            self.connect(stream.name, stream.direction, bound, fifos.get(bound), name, inputs, outputs)
        lent = dict(call.arrays)
        for array in callee.arrays:
            if array.external:
                self.lend(lent[array.name], storage_of(array), call, inputs, outputs)
        for output, value in call.results:
            net = module.net(value.name, value.width)
            outputs[f"out_{output}"] = net
            self.around.held[value.name] = net
        for output, operand in callee.outputs:
            if f"out_{output}" not in outputs:
                outputs[f"out_{output}"] = module.net(f"{name}_{output}_unused", operand.width)
        module.instance(module_name(callee), name, inputs, outputs, f"{callee.name}: {call.location}")
        return flag(module, f"{name}_ended", done, begin)

    def given(self, operand: Operand) -> Term:
        """A value as a stage gets it."""
        return self.operand(operand)

    def lend(self, array: str, port: Storage, call: Call, inputs: dict[str, Term], outputs: dict[str, Net]) -> None:
        """Connects an array of this process to a stage."""
        self.around.arrays[array].lend(port, run_name(call), inputs, outputs)

    def connect(
        self,
        port: str,
        direction: Direction,
        bound: str,
        fifo: dict[str, Net] | None,
        child: str,
        inputs: dict[str, Term],
        outputs: dict[str, Net],
    ) -> None:
        """A stream of a callee: one end of a FIFO, or a stream of this process."""
        module = self.around.module
        if fifo is not None and direction is Direction.READ:
            inputs |= {f"{port}_data": fifo["out_data"], f"{port}_valid": fifo["out_valid"]}
            outputs[f"{port}_ready"] = fifo["out_ready"]
        elif fifo is not None:
            outputs |= {f"{port}_data": fifo["in_data"], f"{port}_valid": fifo["in_valid"]}
            inputs[f"{port}_ready"] = fifo["in_ready"]
        elif direction is Direction.READ:
            end = self.around.inputs[bound]
            ready = module.net(f"{child}_{port}_ready", 1)
            end.pops.append(ready)
            inputs |= {f"{port}_data": end.data, f"{port}_valid": end.valid}
            outputs[f"{port}_ready"] = ready
        else:
            data, valid, ready = self.around.outputs[bound].callee(module, child)
            outputs |= {f"{port}_data": data, f"{port}_valid": valid}
            inputs[f"{port}_ready"] = ready


def run_name(call: Call) -> str:
    """What the nets of a stage are called."""
    return f"{call.process}_run"


def module_name(process: Process) -> str:
    """The name of the module of a process."""
    return f"{process.name}_process"
