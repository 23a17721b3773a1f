# SPDX-License-Identifier: Apache-2.0
"""Regions one after the other: each begins with a pulse and ends with one.

A pulse comes in the last cycle of its cause; registers written there are read one cycle later. So a region that looks
at values of the one before it begins with a cycle of its own (`setup`). Logic between two regions that is short enough
takes no cycle: it belongs to the setup of the second one, and its results are registers from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from openhls.emit.dataflow import Stages
from openhls.emit.datapath import Pipeline, Surroundings, expression
from openhls.emit.netlist import (
    ONE,
    Literal,
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
from openhls.emit.overlap import Overlap
from openhls.emit.overlapped import OverlappedStages
from openhls.emit.pulses import delayed, flag
from openhls.ir import (
    PREDICATED,
    Block,
    Const,
    Dataflow,
    Loop,
    Operand,
    Program,
    Value,
)
from openhls.schedule.dependence import Body
from openhls.schedule.pipelined import Pipelined
from openhls.schedule.plan import Around, Step, Straight
from openhls.schedule.schedule import Schedule
from openhls.schedule.target import Target


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
    around: Surroundings
    overlaps: dict[str, Overlap] = field(default_factory=dict)  # by the label of the region
    scheduled: list[Scheduled] = field(default_factory=list)
    idle: dict[str, Term] = field(default_factory=dict)  # True if nothing is left in a region whose iterations overlap
    fresh: dict[str, Term] = field(default_factory=dict)  # values that are known in the setup that comes next only

    def sequence(self, steps: Sequence[Step], start: Term, repeated: bool = False) -> Term:
        """Steps in order; returns the pulse that ends the last one. `repeated`: a loop's setup follows."""
        for number, step in enumerate(steps):
            match step:
                case Straight():
                    following = steps[number + 1] if number + 1 < len(steps) else None
                    in_setup = repeated if following is None else not isinstance(following, Straight)
                    start = self.block(step, start, in_setup)
                case Pipelined():
                    start = self.inner_loop(step, start)
                case Around():
                    start = self.outer_loop(step, start)
                case Dataflow():
                    start = self.stages(step, start)
        return start

    def operand(self, operand: Operand) -> Term:
        """A value of earlier regions."""
        if isinstance(operand, Const):
            return literal(operand.width, operand.bits)
        return self.around.held[operand.name]

    def now(self, operand: Operand) -> Term:
        """A value as a setup sees it."""
        fresh = self.fresh.get(operand.name) if isinstance(operand, Value) else None
        return self.operand(operand) if fresh is None else fresh

    # ---- blocks and innermost loops ----

    def block(self, step: Straight, start: Term, in_setup: bool) -> Term:
        """A pipeline, or with `in_setup` part of the setup that follows, if it is short enough."""
        block, body, schedule = step.block, step.body, step.schedule
        if in_setup and fits_in_setup(body, schedule, self.around.target):
            self.scheduled.append(Scheduled(block, body, replace(schedule, depth=0)))
            self.in_setup(block, start)
            return start
        self.scheduled.append(Scheduled(block, body, schedule))
        pipeline = Pipeline(block.label, self.around, body, schedule)
        pipeline.begin()
        pipeline.launch_with(flag(self.around.module, f"{block.label}_waits", start, pipeline.launch))
        for operation in block.operations:
            if operation.result is not None:
                self.around.held.later(operation.result.name, partial(pipeline.final, operation.result))
        return pipeline.completes[-1]

    def in_setup(self, block: Block, start: Term) -> None:
        """Plain logic; the results are registers after the setup that begins with `start`."""
        setup = delayed(self.around.module, f"{block.label}_setup", start)
        for operation in block.operations:
            result = operation.result
            assert result is not None
            operands = [self.now(operand) for operand in operation.operands]
            term = expression(operation.opcode, operands, result.width, operation.low)
            if not isinstance(term, Literal):
                term = self.around.module.wire(result.name, term, operation.location)
            self.fresh[result.name] = term
            self.around.held.later(result.name, partial(self.kept, result.name, term, setup))

    def kept(self, name: str, term: Term, enable: Term) -> Term:
        module = self.around.module
        if isinstance(term, Literal):
            return term
        return module.register(module.net(f"{name}_kept", term.width), term, enable)

    def inner_loop(self, form: Pipelined, start: Term) -> Term:
        loop, body, schedule = form.loop, form.body, form.schedule
        module, name = self.around.module, loop.label
        self.scheduled.append(Scheduled(loop, body, schedule))
        setup = delayed(self.around.module, f"{name}_setup", start)
        entered = self.now(loop.enter)
        enter = all_of([setup, entered])
        initial = {item.value.name: self.now(item.initial) for item in loop.carried}
        self.fresh.clear()
        pipeline = Pipeline(name, self.around, body, schedule)
        for item in loop.carried:
            pipeline.base[item.value.name] = module.net(item.value.name, item.value.width)
        pipeline.begin()
        for item in loop.carried:
            commit = schedule.commit[item.value.name]
            following = pipeline.value(item.following, commit)
            net = pipeline.base[item.value.name]
            assert isinstance(net, Net)
            taken = choose(setup, initial[item.value.name], following)
            module.register(net, taken, any_of([setup, pipeline.completes[commit]]))
        decision = schedule.again
        last = all_of([pipeline.completes[decision], negate(pipeline.value(loop.again, decision))])
        active = flag(self.around.module, f"{name}_active", enter, last)
        pipeline.launch_with(all_of([active, self.turn(name, setup, pipeline)]))
        finished = last if schedule.depth == 1 else self.finished(name, enter, active, pipeline)
        for result in loop.results:
            self.around.held.later(result.value.name, partial(pipeline.final, result.source))
        return any_of([all_of([setup, negate(entered)]), finished])

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
        busy = flag(self.around.module, f"{name}_busy", enter, pulse)
        held_up: list[Term] = []
        if pipeline.schedule.depth > 1:
            last = pipeline.schedule.depth - 1
            held_up = [all_of([pipeline.valid[last], negate(pipeline.moves[last])])]
        waiting = any_of([active, *pipeline.busy_behind, *held_up])
        return module.assign(pulse, all_of([busy, negate(waiting)]))

    # ---- loops around other regions ----

    def outer_loop(self, step: Around, start: Term) -> Term:
        loop = step.loop
        module, name = self.around.module, loop.label
        setup = delayed(self.around.module, f"{name}_setup", start)
        enter = self.now(loop.enter)
        initial = {item.value.name: self.now(item.initial) for item in loop.carried}
        self.fresh.clear()
        for item in loop.carried:
            self.around.held[item.value.name] = module.net(item.value.name, item.value.width)
        body_start = module.net(f"{name}_starts_body", 1)
        turn = delayed(self.around.module, f"{name}_turn", self.sequence(step.steps, body_start, repeated=True))
        again = self.now(loop.again)
        following = {item.value.name: self.now(item.following) for item in loop.carried}
        self.fresh.clear()
        module.assign(body_start, any_of([all_of([setup, enter]), all_of([turn, again])]))
        for item in loop.carried:
            net = self.around.held[item.value.name]
            assert isinstance(net, Net)
            taken = choose(setup, initial[item.value.name], following[item.value.name])
            module.register(net, taken, any_of([setup, all_of([turn, again])]))
        for result in loop.results:
            self.around.held.later(result.value.name, partial(self.operand, result.source))
        ended = any_of([all_of([setup, negate(enter)]), all_of([turn, negate(again)])])
        idle = [self.idle.pop(region.label) for region in loop.body if region.label in self.idle]
        return self.drained(name, ended, all_of(idle)) if idle else ended

    def drained(self, name: str, ended: Term, idle: Term) -> Term:
        """The pulse after `ended` with which nothing of the iterations that were handed to stages is left."""
        finished = self.around.module.net(f"{name}_drained", 1)
        drains = flag(self.around.module, f"{name}_drains", ended, finished)
        return self.around.module.assign(finished, all_of([drains, idle]))

    # ---- processes at the same time ----

    def stages(self, region: Dataflow, start: Term) -> Term:
        module, name = self.around.module, region.label
        setup = delayed(module, f"{name}_setup", start)
        enter = self.now(region.enter)
        self.fresh.clear()
        begin = module.wire(f"{name}_begins", all_of([setup, enter]))
        overlap = self.overlaps.get(name)
        if overlap is None:
            finished = Stages(self.program, self.around, region, self.operand).build(begin)
        else:
            stages = OverlappedStages(self.program, self.around, region, self.operand, overlap)
            finished = stages.build(begin)  # an iteration has been handed over
            self.idle[name] = stages.idle
        return any_of([all_of([setup, negate(enter)]), finished])


def fits_in_setup(body: Body, schedule: Schedule, target: Target) -> bool:
    """True if a block without accesses leaves time for the choice between two values in its only step."""
    slowest = max(time.offset for time in schedule.ends)
    plain = not any(operation.opcode in PREDICATED for operation in body.operations)
    return plain and schedule.depth == 1 and slowest + target.delays.logic(3) <= target.budget
