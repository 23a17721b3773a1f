# SPDX-License-Identifier: Apache-2.0
"""A process as the front end leaves it: what it is, and what the passes need to finish it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openhls.ir import Array, Location, Operand, Process, Value
from openhls.names import Names
from openhls.wrapping import Wrapping


@dataclass(frozen=True)
class Queue:
    """A stream that one process writes and reads; the C++ calls it `variable`. `depth` is what the C++ says, if it says
    any. A static one lives as long as the program."""

    name: str
    variable: str
    width: int
    depth: int | None
    location: Location
    is_static: bool = False


@dataclass(frozen=True)
class Given:
    """A number behind a reference, in an array of one element: `value` brings it in, and it leaves as the output
    `output`, unless that is empty. Memory pads numbers; `value` has the width of the C++."""

    array: str
    value: Value
    is_signed: bool
    output: str


@dataclass(frozen=True)
class Lowered:
    """`process` still has accesses to `queues`, arrays that are `values`, and accesses to memory as loads and stores at
    byte addresses of `pointers`. `result` is what the function returns. `numbers` are the arguments that stay even if
    nothing uses them. `widths` are the elements in which stages access memory. `sequences` are pointers that become
    streams, with the bytes of an element; `counts`, once they are streams, has their words.
    """

    process: Process
    names: Names
    wrapping: Wrapping
    queues: tuple[Queue, ...]
    values: tuple[Array, ...]
    given: tuple[Given, ...]
    result: Operand | None
    numbers: frozenset[str]
    pointers: frozenset[str]
    widths: Mapping[str, int]
    sequences: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
