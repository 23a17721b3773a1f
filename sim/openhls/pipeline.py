# SPDX-License-Identifier: Apache-2.0
"""The passes in the order in which they run, with what each needs and what it leaves.

A process goes through PROCESS_PASSES as soon as the front end has lowered it, callees first, for its callers connect to
what is left of it. Once all are there, the program goes through PROGRAM_PASSES. The scheduler then takes each innermost
loop through LOOP_PASSES, in the forms that it tries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from openhls.backend.pipelined import keeps_interval
from openhls.backend.storage import storage_of
from openhls.backend.target import Target
from openhls.ir import Process, Program
from openhls.passes.answers import answer_ahead
from openhls.passes.balance import balance
from openhls.passes.bursts import Bursts
from openhls.passes.expand import expand
from openhls.passes.flatten import flatten_process
from openhls.passes.forward import forward
from openhls.passes.look_ahead import look_ahead
from openhls.passes.naming import name_values
from openhls.passes.narrow import narrow
from openhls.passes.second_port import add_second_ports
from openhls.passes.tidy import tidy
from openhls.passes.two_ports import add_two_ports
from openhls.verify import verify, verify_process

Run = TypeVar("Run")


@dataclass(frozen=True)
class Pass(Generic[Run]):
    """`needs` and `leaves` say what is true before and after it, beyond the rules of openhls.ir."""

    run: Run
    needs: str
    leaves: str


def _flatten(program: Program, target: Target) -> Program:
    def flattened(process: Process) -> Process:
        storages = {array.name: storage_of(array) for array in process.arrays}
        return flatten_process(process, lambda flat: keeps_interval(flat, storages, target))

    return replace(program, processes={name: flattened(each) for name, each in program.processes.items()})


def _expand(program: Program, target: Target) -> Program:
    return replace(program, processes={name: expand(each) for name, each in program.processes.items()})


def _name(program: Program, target: Target) -> Program:
    return replace(program, processes={name: name_values(each) for name, each in program.processes.items()})


def _second_ports(program: Program, target: Target) -> Program:
    return add_second_ports(program)


def _two_ports(program: Program, target: Target) -> Program:
    return replace(program, processes={name: add_two_ports(each) for name, each in program.processes.items()})


def _narrow(program: Program, target: Target) -> Program:
    return narrow(program)


_TIDY: Pass[Callable[[Process, Bursts], Process]] = Pass(
    lambda process, bursts: tidy(process), "any process", "nothing without an effect: no unused value, array or access"
)
# Before them, frontend/assembly.py turns scalars and arrays in registers into values (passes/promote.py).
PROCESS_PASSES = (
    _TIDY,
    Pass(
        lambda process, bursts: bursts.rewrite(process),
        "accesses to memory are loads and stores at byte addresses, those of one loop in one block",
        "accesses to memory are requests and words on streams (openhls.ir.MemoryPort)",
    ),
    _TIDY,
)

_NARROW: Pass[Callable[[Program, Target], Program]] = Pass(
    _narrow, "all processes of the program", "values, words and elements as narrow as facts and demands allow"
)
PROGRAM_PASSES = (
    _NARROW,
    Pass(_expand, "narrow operands: a division takes a step per bit", "no divisions and no counts"),
    _NARROW,
    Pass(_flatten, "final widths: a nest is judged by its schedule", "one loop for a nest that keeps its interval"),
    Pass(_second_ports, "final loops", "two ports for array arguments that a loop reads more than once an iteration"),
    Pass(
        _two_ports, "final loops", "two ports, each to read or to write, where PIPELINE asks for more than one of each"
    ),
    Pass(_name, "all values of the program", "names of C++ variables; what is made from here on is named after these"),
)

LOOP_PASSES = (
    Pass(balance, "an innermost loop", "one addition between a carried value and its next one"),
    Pass(look_ahead, "balanced sums", "an exit condition that is a register, where counters alone decide it"),
    Pass(answer_ahead, "balanced sums", "an exit condition that answers of streams choose from registers"),
    Pass(forward, "a memory that limits the interval", "loads that stores of the last iterations reach directly"),
)

_CHECKED = ContextVar("checked", default=False)


@contextmanager
def checked(wanted: bool = True) -> Iterator[None]:
    """Within, the rules of openhls.ir are checked after every pass, not only at the end of the front end."""
    token = _CHECKED.set(wanted)
    yield
    _CHECKED.reset(token)


def finish_process(process: Process, bursts: Bursts, callees: Mapping[str, Process]) -> Process:
    """A process as the front end lowered it, through PROCESS_PASSES."""
    for each in PROCESS_PASSES:
        process = each.run(process, bursts)
        if _CHECKED.get():
            verify_process(process, callees, bursts.pointers)
    return process


def finish_program(program: Program, target: Target) -> Program:
    """What the front end made, through PROGRAM_PASSES: ready to be scheduled for that target."""
    for each in PROGRAM_PASSES:
        program = each.run(program, target)
        if _CHECKED.get():
            verify(program)
    return program
