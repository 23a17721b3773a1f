# SPDX-License-Identifier: Apache-2.0
"""Which streams, FIFOs and arrays of a program's processes are one and the same, and the order of its processes."""

from __future__ import annotations

from openhls.ir import Process, Program, calls_of

Name = tuple[str, str]  # a process, and a name in it


class Links:
    """`root` of a name is the same for all names of one stream or array, in whatever process."""

    def __init__(self, program: Program) -> None:
        self.parents: dict[Name, Name] = {}
        for process in program.processes.values():
            for call in calls_of(process.body):
                for inner, outer in (*call.streams, *call.arrays):
                    self.parents[self.root((call.process, inner))] = self.root((process.name, outer))

    def root(self, name: Name) -> Name:
        while name in self.parents and self.parents[name] != name:
            name = self.parents[name]
        return name


def callers_first(program: Program) -> list[Process]:
    """Each process before those it calls, and these in the order of their calls."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for call in reversed(list(calls_of(program.processes[name].body))):
                visit(call.process)
            order.append(name)

    visit(program.top)
    return [program.processes[name] for name in reversed(order)]
