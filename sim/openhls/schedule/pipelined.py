# SPDX-License-Identifier: Apache-2.0
"""An innermost loop made ready to be a pipeline, with its schedule; and which nests become one such loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openhls.analysis.storage import Storage
from openhls.ir import Dependence, Loop, Opcode, Operation, operations_of
from openhls.passes.balance import balance
from openhls.passes.flatten import Flat
from openhls.passes.forward import forward
from openhls.passes.look_ahead import Ahead, look_ahead
from openhls.schedule.dependence import Body, recurrences
from openhls.schedule.schedule import Schedule, TooShort, schedule_loop
from openhls.schedule.target import Target

MOST_FORWARDED = 4  # stores that the loads of a loop are compared with


@dataclass(frozen=True)
class Pipelined:
    """The loop as it becomes hardware; `first` are operations on values from before it that give its start."""

    loop: Loop
    first: tuple[Operation, ...]
    body: Body
    schedule: Schedule


Storages = Mapping[str, Storage]
Helps = Callable[[Loop], bool]  # true if a loop would have a shorter interval than the forms so far
Form = Callable[[Loop, Storages, Helps], Iterable[Ahead]]


def pipelined(
    loop: Loop, storages: Storages, target: Target, forms: Sequence[Form], most: int | None = None
) -> Pipelined:
    """The form of `loop` with the shortest interval. `forms` begins with the cheapest one; what costs more hardware is
    done only where that helps.

    Raises TooShort if the interval is longer than `most`.
    """
    best, problem = None, None

    def shorter(ahead: Ahead) -> Pipelined | None:
        """The form if its interval is shorter than the best one, and at most `most`."""
        nonlocal problem
        limit = most if best is None or best.schedule.interval is None else best.schedule.interval - 1
        try:
            return attempt(ahead, storages, target, limit)
        except TooShort as short:
            problem = problem or short
            return None

    for ahead in forms_of(loop, storages, forms, lambda changed: shorter(look_ahead(changed)) is not None):
        best = shorter(ahead) or best
        if best is not None and (loop.pipeline.off or best.schedule.interval == (loop.pipeline.interval or 1)):
            break
    if best is None:
        assert problem is not None
        raise problem
    return best


def forms_of(loop: Loop, storages: Storages, forms: Sequence[Form], helps: Helps) -> Iterator[Ahead]:
    """The loop as it may become hardware, in the order of `forms`."""
    for form in forms:
        yield from form(loop, storages, helps)


def forwarded(loop: Loop, storages: Storages, helps: Helps) -> Iterator[Ahead]:
    """The loop with the last stores to one of its memories in registers, for every number of them that may help."""
    found = recurrences(Body.of_loop(loop, storages))
    balanced = balance(loop)
    if not found or not helps(without(balanced, *found)):
        return
    for array, nearest in found.items():
        stores = sum(op.opcode is Opcode.STORE and op.target == array for op in operations_of(loop.body))
        if stores > MOST_FORWARDED or not helps(without(balanced, array)):
            continue
        for reach in range(nearest, nearest + MOST_FORWARDED // stores):
            yield look_ahead(balance(forward(loop, array, nearest, reach)))


def without(loop: Loop, *arrays: str) -> Loop:
    """The loop as if no iteration loaded what an earlier one has stored in these memories."""
    promises = (Dependence(array, between=True, dependent=False, direction="RAW") for array in arrays)
    return replace(loop, dependences=(*loop.dependences, *promises))


def attempt(ahead: Ahead, storages: Storages, target: Target, most: int | None) -> Pipelined:
    wish = ahead.loop.pipeline
    body = Body.of_loop(ahead.loop, storages)
    schedule = schedule_loop(body, ahead.loop.again, wish.interval or 1, not wish.off, target, most)
    return Pipelined(ahead.loop, ahead.first, body, schedule)


def keeps_interval(flat: Flat, storages: Storages, target: Target, forms: Sequence[Form]) -> bool:
    """True if the flattened loop starts iterations as often as the inner loop alone."""
    inner = pipelined(flat.inner, storages, target, forms)
    try:
        pipelined(flat.loop, storages, target, forms, inner.schedule.interval)
    except TooShort:
        return False
    return True
