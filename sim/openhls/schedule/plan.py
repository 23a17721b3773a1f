# SPDX-License-Identifier: Apache-2.0
"""The schedule of a program: what each process does, one step after the other, and when the operations of a step start.

Innermost loops have the form with the shortest interval. What they start with is worked out in the block before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from openhls.analysis.storage import storage_of
from openhls.ir import Block, Dataflow, Loop, Process, Program, Region
from openhls.schedule.dependence import Body
from openhls.schedule.pipelined import Form, Pipelined, Storages, pipelined
from openhls.schedule.schedule import Schedule, schedule_block
from openhls.schedule.target import Target


@dataclass(frozen=True)
class Straight:
    """Operations that run once."""

    block: Block
    body: Body
    schedule: Schedule


@dataclass(frozen=True)
class Around:
    """A loop around other steps."""

    loop: Loop
    steps: tuple[Step, ...]


Step: TypeAlias = Straight | Pipelined | Around | Dataflow
Plan = Mapping[str, tuple[Step, ...]]  # by the name of the process


def schedule_program(program: Program, target: Target, forms: Sequence[Form]) -> Plan:
    """The steps of all processes. Raises Unsupported for a loop without a schedule."""
    return {name: schedule_process(process, target, forms) for name, process in program.processes.items()}


def schedule_process(process: Process, target: Target, forms: Sequence[Form]) -> tuple[Step, ...]:
    storages = {array.name: storage_of(array) for array in process.arrays}
    return _steps(process.body, storages, target, forms)


def _steps(regions: Sequence[Region], storages: Storages, target: Target, forms: Sequence[Form]) -> tuple[Step, ...]:
    found: list[Block | Pipelined | Around | Dataflow] = []
    for region in regions:
        if isinstance(region, Loop) and region.innermost:
            form = pipelined(region, storages, target, forms)
            before = found[-1] if found else None
            if isinstance(before, Block):
                found[-1] = replace(before, operations=(*before.operations, *form.first))
            elif form.first:
                found.append(Block(f"{region.label}_before", form.first, region.location))
            found.append(form)
        elif isinstance(region, Loop):
            found.append(Around(region, _steps(region.body, storages, target, forms)))
        elif not isinstance(region, Block) or region.operations:
            found.append(region)

    def scheduled(block: Block) -> Straight:
        body = Body(block.operations, storages)
        return Straight(block, body, schedule_block(body, target))

    return tuple(scheduled(each) if isinstance(each, Block) else each for each in found)
