"""How much memory a model takes whose weights are all on flash, and how many layers stay in memory within a bound."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from kvdrive.errors import InputError
from kvdrive.weights.memory import bytes_in, size
from kvdrive.weights.stream.arena import full_bytes, least_bytes
from kvdrive.weights.stream.embedding import staging_bytes
from kvdrive.weights.stream.layout import Layout


@dataclass(frozen=True)
class Division:
    """`resident`: the first units, which stay in memory. `arena`: bytes through which the others pass; `converted`: of
    these, in the precision of the computation. `whole`: of all weights; `bytes`: what memory holds at most; `least`:
    the smallest budget.
    """

    resident: int
    arena: int
    converted: int
    whole: int
    bytes: int
    least: int


def divide(layout: Layout, budget: int | Fraction | Literal["auto"]) -> Division:
    """What is in memory within a budget (`bytes_in`). Raises InputError."""
    units = layout.units
    fixed = layout.rest.held + staging_bytes(layout.embedding)
    converted = max(unit.converted for unit in units)
    loading = max(unit.bytes for unit in units) if converted else 0  # a unit that is converted
    whole = fixed + sum(unit.held for unit in units) + loading
    passing = fixed + converted
    least = min(whole, passing + least_bytes(units))
    limit = bytes_in(budget, whole, least)
    if limit >= whole:
        return Division(len(units), 0, 0, whole, whole, least)
    if limit < least:
        raise InputError(
            f"{size(limit)} hold less than what layers pass through on their way from flash: give "
            f"`weights_memory={size(least)}` or more; all weights take {size(whole)}"
        )
    full = full_bytes(units)
    arena = full if passing + full <= limit else least_bytes(units)
    left, resident = limit - passing - arena, 0
    while resident < len(units) - 1 and units[resident].held <= left:
        left -= units[resident].held
        resident += 1
    return Division(resident, arena, converted, whole, limit - left, least)
