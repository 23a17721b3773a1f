# SPDX-License-Identifier: Apache-2.0
"""The compiler as a whole, and its passes in the order in which they run, with what each needs and what it leaves.

A process goes through PROCESS_PASSES as soon as the front end has lowered it, callees first, for its callers connect to
what is left of it. Once all are there, the program goes through PROGRAM_PASSES. The scheduler then tries the forms of
each innermost loop that LOOP_PASSES make, the cheapest first. The scheduled program is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from openhls.analysis.storage import storage_of, without_ultra_ram
from openhls.emit.design import Design, emit
from openhls.emit.expect import Expectation
from openhls.emit.top import module_of
from openhls.frontend.compile import lower_program
from openhls.frontend.directives import Directive
from openhls.frontend.interfaces import FLOWS
from openhls.ir import Process, Program
from openhls.lowered import Lowered
from openhls.passes.answers import answer_ahead
from openhls.passes.balance import balance
from openhls.passes.bursts import with_requests
from openhls.passes.expand import expand
from openhls.passes.flatten import flatten_process
from openhls.passes.look_ahead import look_ahead
from openhls.passes.naming import name_values
from openhls.passes.narrow import narrow
from openhls.passes.promote import promote
from openhls.passes.queues import without_queues
from openhls.passes.second_port import add_second_ports
from openhls.passes.sequences import with_streams
from openhls.passes.tidy import tidy, without_unused_arguments
from openhls.passes.two_ports import add_two_ports
from openhls.schedule.pipelined import Form, forwarded, keeps_interval
from openhls.schedule.plan import Plan, schedule_program
from openhls.schedule.target import Target, target_of
from openhls.verify import verify, verify_process

Run = TypeVar("Run")


@dataclass(frozen=True)
class Pass(Generic[Run]):
    """`needs` and `leaves` say what is true before and after it, beyond the rules of openhls.ir."""

    run: Run
    needs: str
    leaves: str


_TIDY: Pass[Callable[[Lowered], Lowered]] = Pass(
    lambda lowered: replace(lowered, process=tidy(lowered.process)),
    "any process",
    "nothing without an effect: no unused value, array or access",
)
PROCESS_PASSES = (
    Pass(without_queues, "the loops around the accesses to each queue", "queues are arrays"),
    Pass(promote, "arrays of registers, and scalars in memory", "values; references are arguments and outputs"),
    _TIDY,
    Pass(
        with_requests,
        "accesses to memory are loads and stores at byte addresses, those of one loop in one block",
        "accesses to memory are requests and words on streams (openhls.ir.MemoryPort)",
    ),
    _TIDY,
    Pass(without_unused_arguments, "no unused accesses", "pointers among the arguments are used"),
    Pass(
        with_streams, "requests, all of them used", "words in place of requests, for array arguments that are streams"
    ),
)


def _each(change: Callable[[Process], Process]) -> Callable[[Program, Target], Program]:
    """A pass of processes as one of programs."""
    return lambda program, target: replace(
        program, processes={name: change(each) for name, each in program.processes.items()}
    )


def _flatten(program: Program, target: Target) -> Program:
    def flattened(process: Process) -> Process:
        storages = {array.name: storage_of(array) for array in process.arrays}
        return flatten_process(process, lambda flat: keeps_interval(flat, storages, target, loop_forms()))

    return _each(flattened)(program, target)


_NARROW: Pass[Callable[[Program, Target], Program]] = Pass(
    lambda program, target: narrow(program),
    "all processes of the program",
    "values, words and elements as narrow as facts and demands allow",
)
PROGRAM_PASSES = (
    _NARROW,
    Pass(_each(expand), "narrow operands: a division takes a step per bit", "no divisions and no counts"),
    _NARROW,
    Pass(_flatten, "final widths: a nest is judged by its schedule", "one loop for a nest that keeps its interval"),
    Pass(
        lambda program, target: add_second_ports(program),
        "final loops",
        "two ports for array arguments that a loop reads more than once an iteration",
    ),
    Pass(
        _each(add_two_ports),
        "final loops",
        "two ports, each to read or to write, where PIPELINE asks for more than one of each",
    ),
    Pass(
        _each(name_values),
        "all values of the program",
        "names of C++ variables; what is made from here on is named after these",
    ),
)

LOOP_PASSES: tuple[Pass[Form], ...] = (
    Pass(
        lambda loop, storages, helps: [look_ahead(balance(loop))],
        "an innermost loop",
        "one addition between a carried value and its next one; an exit condition that is a register, if counters "
        "alone decide it",
    ),
    Pass(
        lambda loop, storages, helps: [look_ahead(balance(loop, shared=True))],
        "sums that something else uses, too",
        "the same, for one more addition",
    ),
    Pass(
        lambda loop, storages, helps: [form] if (form := answer_ahead(balance(loop))) is not None else [],
        "a condition that depends on answers of streams",
        "an exit condition that these answers choose from registers",
    ),
    Pass(forwarded, "a memory that limits the interval", "loads that stores of the last iterations reach directly"),
)

_CHECKED = ContextVar("checked", default=False)


@contextmanager
def checked(wanted: bool = True) -> Iterator[None]:
    """Within, the rules of openhls.ir are checked after every pass, not only at the end of the front end."""
    token = _CHECKED.set(wanted)
    yield
    _CHECKED.reset(token)


def loop_forms() -> tuple[Form, ...]:
    """What LOOP_PASSES make of an innermost loop."""
    return tuple(each.run for each in LOOP_PASSES)


def finish_process(lowered: Lowered, callees: Mapping[str, Process]) -> Lowered:
    """A process as the front end lowered it, through PROCESS_PASSES."""
    for each in PROCESS_PASSES:
        lowered = each.run(lowered)
        if _CHECKED.get():
            verify_process(lowered.process, callees, lowered.pointers)
    return lowered


def compile_program(
    source: Path | Sequence[Path],
    top: str,
    includes: tuple[Path, ...] = (),
    defines: tuple[str, ...] = (),
    *,
    strict: bool = False,
    flow: str = FLOWS[0],
    directives: tuple[Directive, ...] = (),
) -> Program:
    """C++ to a checked program. `flow`: what arguments without INTERFACE are (interfaces.FLOWS). Raises Unsupported for
    C++ outside the subset, with `strict` also for what would be a warning; OpenHlsError for wrong C++ or missing tools.
    """
    program = lower_program(
        *(source, top, includes, defines, finish_process), strict=strict, flow=flow, directives=directives
    )
    verify(program)
    return program


def finish_program(program: Program, target: Target) -> Program:
    """What the front end made, through PROGRAM_PASSES: ready to be scheduled for that target."""
    for each in PROGRAM_PASSES:
        program = each.run(program, target)
        if _CHECKED.get():
            verify(program)
    return program


def plan_of(program: Program, target: Target) -> Plan:
    """The schedules of a finished program."""
    return schedule_program(program, target, loop_forms())


def write_design(
    program: Program, top: str, out: Path, target: Target | None = None, expected: Expectation | None = None
) -> Design:
    """Write `program` under `out`, with a top module named after the function `top`, for `target` or the default one.

    Raises Unsupported for what has no hardware, Unexpected if the schedule is not as `expected`.
    """
    top, target = module_of(top), target or target_of()
    if not target.ultra_ram:
        program = without_ultra_ram(program)
    program = finish_program(program, target)
    return emit(program, plan_of(program, target), top, out, target, expected)
