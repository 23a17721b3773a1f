# SPDX-License-Identifier: Apache-2.0
"""A program as text, for people and for tests."""

from __future__ import annotations

from collections.abc import Iterator

from openhls.ir import TRUE, Array, Block, Dataflow, Loop, Operation, Partition, Process, Program, Region


def print_program(program: Program) -> str:
    """One line per operation, indented by region."""
    return "\n\n".join("\n".join(_process(process)) for process in program.processes.values()) + "\n"


def print_operation(operation: Operation) -> str:
    """`%result:width = opcode operands`, with target and predicate."""
    result = f"{operation.result}:{operation.result.width} = " if operation.result is not None else ""
    target = f" {operation.target}" if operation.target else ""
    operands = "".join(f"{' ' if i == 0 else ', '}{operand}" for i, operand in enumerate(operation.operands))
    low = f" from {operation.low}" if operation.low else ""
    predicate = f" if {operation.predicate}" if operation.predicate != TRUE else ""
    return f"{result}{operation.opcode.value}{target}{operands}{low}{predicate}"


def _process(process: Process) -> Iterator[str]:
    scalars = ", ".join(f"{value}:{value.width}" for value in process.scalars)
    yield f"process {process.name}({scalars})  // {process.location}"
    for stream in process.streams:
        yield f"  stream {stream.name}: {stream.direction.value} {stream.width}"
    for array in process.arrays:
        yield f"  {_array(array)}"
    yield from _regions(process.body, "  ")
    for name, operand in process.outputs:
        yield f"  output {name} = {operand}"


def _array(array: Array) -> str:
    partition = "" if array.partition is Partition.NONE else f" {array.partition.value}"
    factor = f" {array.factor}" if array.factor > 1 else ""
    table = " table" if array.initial is not None else ""
    external = " external" if array.external else ""
    return f"array {array.name}: {array.length} x {array.width}{partition}{factor}{table}{external}"


def _regions(regions: tuple[Region, ...], indent: str) -> Iterator[str]:
    for region in regions:
        if isinstance(region, Block):
            yield f"{indent}block {region.label}"
            for operation in region.operations:
                yield f"{indent}  {print_operation(operation)}  // {operation.location.line}"
        elif isinstance(region, Loop):
            yield from _loop(region, indent)
        else:
            yield from _dataflow(region, indent)


def _loop(loop: Loop, indent: str) -> Iterator[str]:
    enter = f" if {loop.enter}" if loop.enter != TRUE else ""
    interval = f" II={loop.pipeline.interval}" if loop.pipeline.interval else ""
    trips = f" trips {loop.trip_count.least}..{loop.trip_count.most}" if loop.trip_count else ""
    yield f"{indent}loop {loop.label}{enter}{interval}{trips}  // {loop.location}"
    for each in loop.carried:
        yield f"{indent}  {each.value}:{each.value.width} = {each.initial} then {each.following}"
    for dependence in loop.dependences:
        kind = f"{dependence.direction} distance {dependence.distance}" if dependence.dependent else "none"
        yield f"{indent}  dependence {dependence.array} {kind}"
    yield from _regions(loop.body, indent + "  ")
    yield f"{indent}  again if {loop.again}"
    for result in loop.results:
        yield f"{indent}  {result.value}:{result.value.width} is the last {result.source}"


def _dataflow(region: Dataflow, indent: str) -> Iterator[str]:
    enter = f" if {region.enter}" if region.enter != TRUE else ""
    yield f"{indent}dataflow {region.label}{enter}  // {region.location}"
    for fifo in region.fifos:
        yield f"{indent}  fifo {fifo.name}: {fifo.width} x {fifo.depth}"
    for call in region.calls:
        bound = [f"{name}={operand}" for name, operand in call.scalars]
        bound += [f"{name}={given}" for name, given in (*call.streams, *call.arrays)]
        bound += [f"{value}:{value.width}<-{name}" for name, value in call.results]
        kind = f"task of the {call.task.value} " if call.task else ""
        yield f"{indent}  {kind}{call.process}({', '.join(bound)})"
