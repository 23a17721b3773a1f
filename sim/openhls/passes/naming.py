# SPDX-License-Identifier: Apache-2.0
"""Values get the names that readers of the RTL know: those of C++ variables, streams and arrays.

A value that a variable holds has the variable's name. Any other value is a step on the way to something: it is named
after the nearest variable, stream, array or loop that it leads to, and the line of the C++ that computes it (`sum_l24`
is computed in line 24, for `sum`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from openhls.ir import (
    Block,
    Carried,
    Const,
    Dataflow,
    Loop,
    Opcode,
    Operand,
    Operation,
    Process,
    Region,
    Result,
    Value,
    fifos_of,
    walk,
)
from openhls.names import Names

_NUMBER = re.compile(r"_\d+$")


def name_values(process: Process) -> Process:
    """The same process with other names of values; scalars keep theirs, for callers know them."""
    return process if process.variables is None else _Naming(process, process.variables).run()


def variable_of(value: str, variables: Mapping[str, str]) -> str:
    """The C++ variable that a value holds, "" for none. Passes put a label before a name, and more behind it, with
    points between; values of one variable are numbered."""
    for part in value.split("."):
        if part in variables:
            return variables[part]
        stem = _NUMBER.sub("", part)
        if variables.get(stem) == stem:
            return stem
    return ""


@dataclass
class _Naming:
    """`uses` are those of each value, in the order of the program: another value, or the name of what it ends in.
    `lines` are those that compute the values."""

    process: Process
    variables: Mapping[str, str]
    uses: dict[str, list[Value | str]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)  # streams and arrays that values come from
    names: Names = field(default_factory=Names)
    renamed: dict[str, str] = field(default_factory=dict)

    def run(self) -> Process:
        process = self.process
        for region in walk(process.body):
            self.learn(region)
        for output, operand in process.outputs:
            self.use(operand, output)
        self.renamed = {scalar.name: scalar.name for scalar in process.scalars}
        taken = [*self.renamed, *(stream.name for stream in process.streams), *(each.name for each in process.arrays)]
        taken += [fifo.name for fifo in fifos_of(process.body)] + [region.label for region in walk(process.body)]
        for name in taken:
            self.names.fresh(name)
        for value in self.defined():
            self.renamed[value] = self.names.fresh(self.name(value))
        outputs = tuple((output, self.operand(operand)) for output, operand in process.outputs)
        return replace(process, body=self.regions(process.body), outputs=outputs)

    # ---- what values are for ----

    def use(self, operand: Operand, target: Value | str) -> None:
        if isinstance(operand, Value):
            self.uses.setdefault(operand.name, []).append(target)

    def learn(self, region: Region) -> None:
        match region:
            case Block():
                for operation in region.operations:
                    self.learn_operation(operation)
            case Loop():
                label = region.name or "loop"
                for each in region.carried:
                    self.use(each.initial, each.value)
                    self.use(each.following, each.value)
                    self.lines[each.value.name] = region.location.line
                for result in region.results:
                    self.use(result.source, result.value)
                    self.lines[result.value.name] = region.location.line
                self.use(region.enter, f"enter_{label}")
                self.use(region.again, f"repeat_{label}")
            case Dataflow():
                self.use(region.enter, "start_stages")
                for call in region.calls:
                    for scalar, operand in call.scalars:
                        self.use(operand, f"{call.process}_{scalar}")

    def learn_operation(self, operation: Operation) -> None:
        target: Value | str = operation.target if operation.result is None else operation.result
        for operand in operation.operands:
            self.use(operand, target)
        if operation.opcode is not Opcode.LOAD:  # any element may be read
            self.use(operation.predicate, operation.target)
        if operation.result is not None:
            self.lines[operation.result.name] = operation.location.line
            if operation.opcode in (Opcode.READ, Opcode.LOAD, Opcode.EMPTY, Opcode.FULL):
                self.sources[operation.result.name] = operation.target

    def purpose(self, value: str) -> str:
        """The nearest variable, stream, array, output or loop that a value comes from or leads to."""
        if value in self.sources:
            return self.sources[value]
        pending, seen = [value], {value}
        for each in pending:
            for use in self.uses.get(each, []):
                if isinstance(use, str):
                    return use
                if variable := variable_of(use.name, self.variables):
                    return variable
                if use.name not in seen:
                    seen.add(use.name)
                    pending.append(use.name)
        return "value"

    # ---- names ----

    def defined(self) -> list[str]:
        """All values that get names, in the order of their definitions."""
        found: list[str] = []
        for region in walk(self.process.body):
            match region:
                case Block():
                    found += [op.result.name for op in region.operations if op.result is not None]
                case Loop():
                    found += [each.value.name for each in region.carried]
                    found += [each.value.name for each in region.results]
                case Dataflow():
                    found += [value.name for call in region.calls for _, value in call.results]
        return found

    def name(self, value: str) -> str:
        variable = variable_of(value, self.variables)
        if variable:
            return variable
        if value not in self.lines:  # an output of a stage
            return value
        purpose = self.purpose(value)
        return f"{purpose}_l{self.lines[value]}" if self.lines[value] else purpose

    # ---- the process written again ----

    def operand(self, operand: Operand) -> Operand:
        return operand if isinstance(operand, Const) else self.value(operand)

    def value(self, value: Value) -> Value:
        return Value(self.renamed[value.name], value.width)

    def regions(self, regions: tuple[Region, ...]) -> tuple[Region, ...]:
        return tuple(self.region(region) for region in regions)

    def region(self, region: Region) -> Region:
        match region:
            case Block():
                return replace(region, operations=tuple(self.operation(each) for each in region.operations))
            case Loop():
                return replace(
                    region,
                    carried=tuple(
                        Carried(self.value(each.value), self.operand(each.initial), self.operand(each.following))
                        for each in region.carried
                    ),
                    body=self.regions(region.body),
                    again=self.operand(region.again),
                    results=tuple(Result(self.value(each.value), self.operand(each.source)) for each in region.results),
                    enter=self.operand(region.enter),
                )
            case Dataflow():
                calls = tuple(
                    replace(
                        call,
                        scalars=tuple((name, self.operand(operand)) for name, operand in call.scalars),
                        results=tuple((name, self.value(value)) for name, value in call.results),
                    )
                    for call in region.calls
                )
                return replace(region, enter=self.operand(region.enter), calls=calls)

    def operation(self, operation: Operation) -> Operation:
        return replace(
            operation,
            result=None if operation.result is None else self.value(operation.result),
            operands=tuple(self.operand(each) for each in operation.operands),
            predicate=self.operand(operation.predicate),
        )
