# SPDX-License-Identifier: Apache-2.0
"""Regions one after the other: each begins with a pulse and ends with one.

A pulse comes in the last cycle of its cause; registers written there are read one cycle later. So a region that looks
at values of the one before it begins with a cycle of its own (`setup`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from openhls.backend.balance import balance
from openhls.backend.datapath import Pipeline, Surroundings, expression
from openhls.backend.dependence import Body
from openhls.backend.lookahead import look_ahead
from openhls.backend.memories import storage_of
from openhls.backend.netlist import (
    ONE,
    RESET,
    Net,
    Term,
    add,
    all_of,
    any_of,
    choose,
    equals,
    literal,
    negate,
)
from openhls.backend.schedule import Schedule, schedule_block, schedule_loop
from openhls.ir import Block, Call, Const, Dataflow, Direction, Loop, Operand, Operation, Process, Program, Region


@dataclass(frozen=True)
class Scheduled:
    """A region that became a pipeline, for the report."""

    region: Block | Loop
    body: Body
    schedule: Schedule


@dataclass
class Controller:
    """Builds the regions of one process."""

    program: Program
    process: Process
    around: Surroundings
    clock_mhz: float
    scheduled: list[Scheduled] = field(default_factory=list)

    def sequence(self, regions: tuple[Region, ...], start: Term) -> Term:
        """Regions in order; returns the pulse that ends the last one."""
        for region in regions:
            match region:
                case Block():
                    start = self.block(region, start)
                case Loop():
                    start = self.inner_loop(region, start) if region.innermost else self.outer_loop(region, start)
                case Dataflow():
                    start = self.dataflow(region, start)
        return start

    def operand(self, operand: Operand) -> Term:
        """A value of earlier regions."""
        if isinstance(operand, Const):
            return literal(operand.width, operand.bits)
        return self.around.held[operand.name]

    def pulse_register(self, name: str, pulse: Term) -> Net:
        """A bit that is 1 in the cycle after the pulse."""
        module = self.around.module
        return module.register(module.net(name, 1), pulse, reset=0)

    def flag(self, name: str, set_by: Term, cleared_by: Term) -> Net:
        """A bit that is 1 from the cycle after `set_by` to the cycle of `cleared_by`."""
        module = self.around.module
        net = module.net(name, 1)
        return module.register(net, any_of([set_by, all_of([net, negate(cleared_by)])]), reset=0)

    # ---- blocks and innermost loops ----

    def body_of(self, operations: tuple, loop: Loop | None = None) -> Body:
        storages = {name: end.storage for name, end in self.around.arrays.items()}
        if loop is None:
            return Body(operations, storages)
        return Body(operations, storages, loop.carried, loop.dependences, True)

    def block(self, block: Block, start: Term) -> Term:
        if not block.operations:
            return start
        body = self.body_of(block.operations)
        schedule = schedule_block(body, self.clock_mhz)
        self.scheduled.append(Scheduled(block, body, schedule))
        pipeline = Pipeline(block.label, self.around, body, schedule)
        pipeline.begin()
        pipeline.launch_with(self.flag(f"{block.label}_waits", start, pipeline.launch))
        for operation in block.operations:
            if operation.result is not None:
                self.around.held.later(operation.result.name, partial(pipeline.final, operation.result))
        return pipeline.completes[-1]

    def inner_loop(self, loop: Loop, start: Term) -> Term:
        ahead = look_ahead(balance(loop))
        loop = ahead.loop
        module, name = self.around.module, loop.label
        (block,) = loop.body
        assert isinstance(block, Block)
        body = self.body_of(block.operations, loop)
        wish = loop.pipeline
        schedule = schedule_loop(body, loop.again, wish.interval or 1, not wish.off, self.clock_mhz)
        self.scheduled.append(Scheduled(loop, body, schedule))
        setup = self.pulse_register(f"{name}_setup", start)
        enter = all_of([setup, self.operand(loop.enter)])
        for operation in ahead.first:
            self.at_once(operation)
        pipeline = Pipeline(name, self.around, body, schedule)
        for item in loop.carried:
            pipeline.base[item.value.name] = module.net(item.value.name, item.value.width)
        pipeline.begin()
        for item in loop.carried:
            commit = schedule.commit[item.value.name]
            following = pipeline.value(item.following, commit)
            net = pipeline.base[item.value.name]
            assert isinstance(net, Net)
            taken = choose(setup, self.operand(item.initial), following)
            module.register(net, taken, any_of([setup, pipeline.completes[commit]]))
        decision = schedule.again
        last = all_of([pipeline.completes[decision], negate(pipeline.value(loop.again, decision))])
        active = self.flag(f"{name}_active", enter, last)
        pipeline.launch_with(all_of([active, self.turn(name, setup, pipeline)]))
        finished = self.finished(name, enter, active, pipeline)
        for result in loop.results:
            self.around.held.later(result.value.name, partial(pipeline.final, result.source))
        return any_of([all_of([setup, negate(self.operand(loop.enter))]), finished])

    def at_once(self, operation: Operation) -> None:
        """An operation on values of earlier regions, as plain logic."""
        assert operation.result is not None
        operands = [self.operand(operand) for operand in operation.operands]
        term = expression(operation.opcode, operands, operation.result.width, operation.low)
        result = operation.result
        self.around.held[result.name] = self.around.module.wire(result.name, term, operation.location)

    def turn(self, name: str, setup: Term, pipeline: Pipeline) -> Term:
        """When the next iteration may start, as far as its interval is concerned."""
        interval = pipeline.schedule.interval
        assert interval is not None
        if not pipeline.schedule.overlapped:
            return negate(any_of(pipeline.valid[1:]))
        if interval == 1:
            return ONE
        module = self.around.module
        slot = module.net(f"{name}_slot", (interval - 1).bit_length())
        zero = literal(slot.width, 0)
        wraps = any_of([setup, equals(slot, literal(slot.width, interval - 1))])
        module.register(slot, choose(wraps, zero, add(slot, literal(slot.width, 1))), reset=0)
        return equals(slot, zero)

    def finished(self, name: str, enter: Term, active: Net, pipeline: Pipeline) -> Term:
        """The pulse of a loop whose last iteration is in its last step."""
        module = self.around.module
        pulse = module.net(f"{name}_finished", 1)
        busy = self.flag(f"{name}_busy", enter, pulse)
        held_up: list[Term] = []
        if pipeline.schedule.depth > 1:
            last = pipeline.schedule.depth - 1
            held_up = [all_of([pipeline.valid[last], negate(pipeline.moves[last])])]
        waiting = any_of([active, *pipeline.busy_behind, *held_up])
        return module.assign(pulse, all_of([busy, negate(waiting)]))

    # ---- loops around other regions ----

    def outer_loop(self, loop: Loop, start: Term) -> Term:
        module, name = self.around.module, loop.label
        setup = self.pulse_register(f"{name}_setup", start)
        enter = self.operand(loop.enter)
        for item in loop.carried:
            self.around.held[item.value.name] = module.net(item.value.name, item.value.width)
        body_start = module.net(f"{name}_starts_body", 1)
        turn = self.pulse_register(f"{name}_turn", self.sequence(loop.body, body_start))
        again = self.operand(loop.again)
        module.assign(body_start, any_of([all_of([setup, enter]), all_of([turn, again])]))
        for item in loop.carried:
            net = self.around.held[item.value.name]
            assert isinstance(net, Net)
            taken = choose(setup, self.operand(item.initial), self.operand(item.following))
            module.register(net, taken, any_of([setup, all_of([turn, again])]))
        for result in loop.results:
            self.around.held.later(result.value.name, partial(self.operand, result.source))
        return any_of([all_of([setup, negate(enter)]), all_of([turn, negate(again)])])

    # ---- processes at the same time ----

    def dataflow(self, region: Dataflow, start: Term) -> Term:
        module, name = self.around.module, region.label
        setup = self.pulse_register(f"{name}_setup", start)
        enter = self.operand(region.enter)
        begin = module.wire(f"{name}_begins", all_of([setup, enter]))
        ends: dict[str, dict[str, Net]] = {}
        for fifo in region.fifos:
            nets = {
                f"{side}_{part}": module.net(f"{fifo.name}_{side}_{part}", fifo.width if part == "data" else 1)
                for side in ("in", "out")
                for part in ("data", "valid", "ready")
            }
            ends[fifo.name] = nets
            module.instance(
                "openhls_fifo",
                f"{fifo.name}_fifo",
                {
                    "rst": any_of([RESET, begin]),
                    "in_data": nets["in_data"],
                    "in_valid": nets["in_valid"],
                    "out_ready": nets["out_ready"],
                },
                {"in_ready": nets["in_ready"], "out_data": nets["out_data"], "out_valid": nets["out_valid"]},
                f"{fifo.name}: {fifo.location}",
                WIDTH=fifo.width,
                DEPTH=fifo.depth,
            )
        done = [self.call(call, begin, ends) for call in region.calls]
        finished = module.net(f"{name}_finished", 1)
        busy = self.flag(f"{name}_busy", begin, finished)
        module.assign(finished, all_of([busy, *done]))
        return any_of([all_of([setup, negate(enter)]), finished])

    def call(self, call: Call, begin: Net, fifos: dict[str, dict[str, Net]]) -> Net:
        """An instance of a process; returns a bit that is 1 once it has ended."""
        module = self.around.module
        callee = self.program.processes[call.process]
        name = f"{callee.name}_run"
        inputs: dict[str, Term] = {"start": begin}
        done = module.net(f"{name}_done", 1)
        outputs: dict[str, Net] = {"done": done}
        for scalar, operand in call.scalars:
            inputs[f"arg_{scalar}"] = self.operand(operand)
        for stream in callee.streams:
            bound = dict(call.streams)[stream.name]
            self.connect(stream.name, stream.direction, bound, fifos.get(bound), name, inputs, outputs)
        lent = dict(call.arrays)
        for array in callee.arrays:
            if array.external:
                self.around.arrays[lent[array.name]].lend(storage_of(array), name, inputs, outputs)
        for output, value in call.results:
            net = module.net(value.name, value.width)
            outputs[f"out_{output}"] = net
            self.around.held[value.name] = net
        for output, operand in callee.outputs:
            if f"out_{output}" not in outputs:
                outputs[f"out_{output}"] = module.net(f"{name}_{output}_unused", operand.width)
        module.instance(module_name(callee), name, inputs, outputs, f"{callee.name}: {call.location}")
        return self.flag(f"{name}_ended", done, begin)

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


def module_name(process: Process) -> str:
    """The name of the module of a process."""
    return f"{process.name}_process"
