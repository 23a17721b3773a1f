# SPDX-License-Identifier: Apache-2.0
"""Makes every value, word and array element of a program as narrow as it can be, and removes what is not used.

What the top reads and writes stays as it is. Facts go from writers to readers and from callers to the called, demands
the other way (`ranges`, `demand`); `rewrite` then follows both. The scheduler and the netlist see the new program only.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from openhls.ir import Direction, Process, Program, calls_of, fifos_of
from openhls.passes.narrowing.demand import Demand, Wanted
from openhls.passes.narrowing.facts import Fact, anything, exactly, join
from openhls.passes.narrowing.links import Links, Name, callers_first
from openhls.passes.narrowing.ranges import Given, Ranges
from openhls.passes.narrowing.shape import low_part, wanted_bits
from openhls.passes.narrowing.writer import Shapes, Writer
from openhls.passes.tidy import tidy

SHARPENINGS = 2  # times that facts go through the program


def narrow(program: Program) -> Program:
    """The same program for whoever uses its top."""
    links = Links(program)
    facts = Facts(program, links)
    demands = Demands(program, links)
    shapes = shapes_of(program, links, facts, demands)
    processes = {
        name: tidy(Writer(process, facts.ranges[name], demands.found[name], shapes).run())
        for name, process in program.processes.items()
    }
    return replace(program, processes=processes)


class Facts:
    """`ranges` of each process, and what is known of words, elements, scalars and outputs.

    It starts with what can be anything. Each time around is right whatever the one before has left open.
    """

    def __init__(self, program: Program, links: Links) -> None:
        self.links = links
        self.order = callers_first(program)
        top = program.processes[program.top]
        self.fixed = {links.root((program.top, stream.name)) for stream in top.streams}
        self.outside = {links.root((program.top, array.name)) for array in top.arrays if array.external}
        self.words: dict[Name, Fact] = {}
        self.elements: dict[Name, Fact] = {}
        self.scalars: dict[Name, Fact] = {}
        self.outputs: dict[Name, Fact] = {}
        self.ranges: dict[str, Ranges] = {}
        for _ in range(SHARPENINGS):
            self.go_round()

    def go_round(self) -> None:
        written: dict[Name, Fact] = {}
        stored: dict[Name, Fact] = {}
        scalars: dict[Name, Fact] = {}
        outputs: dict[Name, Fact] = {}
        for process in self.order:
            name = process.name
            given, ranges = self.given(process, scalars), self.ranges.get(name)
            if ranges is None or ranges.given != given:
                ranges = self.ranges[name] = Ranges(process, given)
            for facts, found in ((written, ranges.written), (stored, ranges.stored)):
                for target, fact in found.items():
                    add(facts, self.links.root((name, target)), fact)
            for call, arguments in ranges.arguments:
                for (scalar, _), fact in zip(call.scalars, arguments, strict=True):
                    add(scalars, (call.process, scalar), fact)
            for output, operand in process.outputs:
                outputs[name, output] = ranges.fact(operand)
            for array in process.arrays:
                for bits in array.initial or ():
                    add(stored, self.links.root((name, array.name)), exactly(array.width, bits))
        self.words = {root: fact for root, fact in written.items() if root not in self.fixed}
        self.elements = {root: fact for root, fact in stored.items() if root not in self.outside}
        self.scalars, self.outputs = scalars, outputs

    def given(self, process: Process, scalars: dict[Name, Fact]) -> Given:
        name, root = process.name, self.links.root
        return Given(
            {value.name: scalars[name, value.name] for value in process.scalars if (name, value.name) in scalars},
            {
                each.name: self.words[root((name, each.name))]
                for each in process.streams
                if root((name, each.name)) in self.words
            },
            {
                each.name: self.elements[root((name, each.name))]
                for each in process.arrays
                if root((name, each.name)) in self.elements
            },
            {
                value.name: self.outputs[call.process, output]
                for call in calls_of(process.body)
                for output, value in call.results
                if (call.process, output) in self.outputs
            },
        )


def add(facts: dict[Name, Fact], name: Name, fact: Fact) -> None:
    facts[name] = join(facts[name], fact) if name in facts else fact


class Demands:
    """What is looked at: `found` in each process, and masks of words, elements, scalars and outputs."""

    def __init__(self, program: Program, links: Links) -> None:
        self.links = links
        self.found: dict[str, Demand] = {}
        self.words: defaultdict[Name, int] = defaultdict(int)
        self.elements: defaultdict[Name, int] = defaultdict(int)
        self.scalars: defaultdict[Name, int] = defaultdict(int)
        self.outputs: defaultdict[Name, int] = defaultdict(int)
        top = program.processes[program.top]
        for stream in top.streams:
            self.words[links.root((top.name, stream.name))] = (1 << stream.width) - 1
        for array in (array for array in top.arrays if array.external):
            self.elements[links.root((top.name, array.name))] = (1 << array.width) - 1
        for name, operand in top.outputs:
            self.outputs[top.name, name] = (1 << operand.width) - 1
        before = None
        while before != (before := [dict(each) for each in (self.words, self.elements, self.scalars, self.outputs)]):
            for process in callers_first(program):
                self.visit(process)

    def visit(self, process: Process) -> None:
        name, root = process.name, self.links.root
        streams = [stream.name for stream in process.streams if stream.direction is Direction.WRITE]
        demand = self.found[name] = Demand(
            process,
            Wanted(
                {output: self.outputs[name, output] for output, _ in process.outputs},
                {stream: self.words[root((name, stream))] for stream in streams},
                {array.name: self.elements[root((name, array.name))] for array in process.arrays},
                self.scalars,
            ),
        )
        for masks, found in ((self.words, demand.words), (self.elements, demand.elements)):
            for target, mask in found.items():
                masks[root((name, target))] |= mask
        for pair, mask in demand.results.items():
            self.outputs[pair] |= mask
        for value in process.scalars:
            self.scalars[name, value.name] |= demand.masks[value.name]


def shapes_of(program: Program, links: Links, facts: Facts, demands: Demands) -> Shapes:
    """How everything travels, with the same shape at both ends."""
    shapes = Shapes()
    for process in program.processes.values():
        name = process.name
        streams = [(stream.name, stream.width) for stream in process.streams]
        for target, width in (*streams, *((fifo.name, fifo.width) for fifo in fifos_of(process.body))):
            root = links.root((name, target))
            if root not in facts.fixed:
                fact = facts.words.get(root) or anything(width)
                shapes.words[name, target] = wanted_bits(fact, demands.words[root])
        for array in process.arrays:
            root = links.root((name, array.name))
            fact = facts.elements.get(root) or anything(array.width)
            shapes.elements[name, array.name] = wanted_bits(fact, demands.elements[root])
            if not demands.elements[root]:
                shapes.unused.add((name, array.name))
        if name != program.top:
            for value in process.scalars:
                fact = facts.scalars.get((name, value.name)) or anything(value.width)
                shapes.scalars[name, value.name] = low_part(fact, demands.scalars[name, value.name])
            for output, _ in process.outputs:
                shapes.outputs[name, output] = low_part(facts.outputs[name, output], demands.outputs[name, output])
    return shapes
