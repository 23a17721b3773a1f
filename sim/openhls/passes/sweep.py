# SPDX-License-Identifier: Apache-2.0
"""Removes operations without an effect whose results nobody uses."""

from __future__ import annotations

from dataclasses import replace

from openhls.ir import PREDICATED, Block, Dataflow, Loop, Operand, Operation, Process, Region, Value


def sweep(process: Process) -> Process:
    """`process` without them."""
    used: set[str] = set()
    use(used, *(operand for _, operand in process.outputs))
    return replace(process, body=swept(process.body, used))


def use(used: set[str], *operands: Operand) -> None:
    used.update(operand.name for operand in operands if isinstance(operand, Value))


def swept(regions: tuple[Region, ...], used: set[str]) -> tuple[Region, ...]:
    """What is left of `regions`; adds what it uses to `used`, which has what comes after it."""
    kept: list[Region] = []
    for region in reversed(regions):
        match region:
            case Block():
                operations = swept_operations(region.operations, used)
                if operations or len(regions) == 1:
                    kept.append(replace(region, operations=operations))
            case Loop():
                use(used, region.again, *(result.source for result in region.results))
                use(used, *(item.following for item in region.carried))
                kept.append(replace(region, body=swept(region.body, used)))
                use(used, region.enter, *(item.initial for item in region.carried))
            case Dataflow():
                use(used, region.enter, *(operand for call in region.calls for _, operand in call.scalars))
                kept.append(region)
    return tuple(kept[::-1])


def swept_operations(operations: tuple[Operation, ...], used: set[str]) -> tuple[Operation, ...]:
    kept: list[Operation] = []
    for operation in reversed(operations):
        if operation.opcode in PREDICATED or (operation.result is not None and operation.result.name in used):
            use(used, *operation.inputs())
            kept.append(operation)
    return tuple(kept[::-1])
