# SPDX-License-Identifier: Apache-2.0
"""An innermost loop made ready to be a pipeline, with its schedule; and which nests become one such loop."""

from __future__ import annotations

from dataclasses import dataclass

from openhls.backend.dependence import Body
from openhls.backend.schedule import Schedule, TooShort, schedule_loop
from openhls.backend.storage import Storage
from openhls.backend.target import Target
from openhls.ir import Loop, Operation
from openhls.passes.balance import balance
from openhls.passes.flatten import Flat
from openhls.passes.look_ahead import look_ahead


@dataclass(frozen=True)
class Pipelined:
    """The loop as it becomes hardware; `first` are operations on values from before it that give its start."""

    loop: Loop
    first: tuple[Operation, ...]
    body: Body
    schedule: Schedule


def pipelined(loop: Loop, storages: dict[str, Storage], target: Target, most: int | None = None) -> Pipelined:
    """The form of `loop` with the shortest interval; sums that have other uses are doubled only where that helps.

    Raises TooShort if the interval is longer than `most`.
    """
    forms, problem = [], None
    for shared in (False, True):
        try:
            form = attempt(balance(loop, shared), storages, target, most)
        except TooShort as short:
            problem = short
            continue
        forms.append(form)
        if loop.pipeline.off or form.schedule.interval == (loop.pipeline.interval or 1):
            break
        most = form.schedule.interval
    if not forms:
        assert problem is not None
        raise problem
    return min(forms, key=lambda form: form.schedule.interval or 0)


def attempt(loop: Loop, storages: dict[str, Storage], target: Target, most: int | None) -> Pipelined:
    ahead = look_ahead(loop)
    wish = loop.pipeline
    body = Body.of_loop(ahead.loop, storages)
    schedule = schedule_loop(body, ahead.loop.again, wish.interval or 1, not wish.off, target, most)
    return Pipelined(ahead.loop, ahead.first, body, schedule)


def keeps_interval(flat: Flat, storages: dict[str, Storage], target: Target) -> bool:
    """True if the flattened loop starts iterations as often as the inner loop alone."""
    inner = pipelined(flat.inner, storages, target)
    try:
        pipelined(flat.loop, storages, target, inner.schedule.interval)
    except TooShort:
        return False
    return True
