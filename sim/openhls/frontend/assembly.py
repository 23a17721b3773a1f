# SPDX-License-Identifier: Apache-2.0
"""A process for the passes, of the regions that a function became; and what its callers connect once it is finished."""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.frontend.addresses import Path
from openhls.frontend.draft import Draft
from openhls.frontend.memory import Memory
from openhls.frontend.stages import Interface, Stages
from openhls.frontend.streams import Streams
from openhls.ir import Array, Operand, Partition, Process, Region, Value
from openhls.lowered import Given, Lowered
from openhls.wrapping import Wrapping

MOST_ELEMENTS = 64  # of an array that becomes values
ENDS = ("_r", "_w")  # of the names of streams with the elements of memory

Leaf = tuple[str, Path]  # the object and the way to a number in it
Scalar = tuple[str, str, Path | None]  # name in the process, parameter, leaf (None: the parameter itself)


@dataclass
class Assembly:
    """Puts one process together. `arguments` are the values of its numbers, `scalars` where they come from, `outputs`
    where what leaves goes."""

    draft: Draft
    memory: Memory
    streams: Streams
    stages: Stages
    wrapping: Wrapping
    arguments: list[Value] = field(default_factory=list)
    scalars: list[Scalar] = field(default_factory=list)
    outputs: list[Scalar] = field(default_factory=list)
    has_result: bool = False

    def add_number(self, parameter: str, width: int) -> Value:
        """A parameter that is a number, or the address in a pointer."""
        value = Value(self.draft.reserved[parameter], width)
        self.arguments.append(value)
        self.scalars.append((value.name, parameter, None))
        return value

    def lowered(self, regions: list[Region], result: Operand | None) -> Lowered:
        """The process as the passes get it."""
        context, function = self.draft.context, self.draft.context.function
        leaves = {key: array for key, array in self.memory.arrays.items() if self._becomes_values(key, array)}
        numbers = tuple(self.arguments)
        given = []
        for key, array in leaves.items():
            if context.objects[key[0]].external:
                given.append(self._given(key, array))
        self.has_result = result is not None
        process = Process(
            self.draft.name,
            numbers,
            (*self.streams.ports(), *self.stages.lent.values(), *self.stages.pointers.bursts.values()),
            tuple(self.memory.arrays.values()),
            tuple(regions),
            (),
            function.location,
            self.draft.variables,
        )
        pointers = frozenset(self._pointers())
        widths = {name.rpartition("_")[0]: each.width for name, each in self.stages.lent.items() if name[-2:] in ENDS}
        return Lowered(
            process,
            self.draft.names,
            self.wrapping,
            tuple(self.streams.queues()),
            tuple(leaves.values()),
            tuple(given),
            result,
            frozenset(value.name for value in numbers) - pointers,
            pointers,
            widths,
        )

    def interface(self, process: Process) -> Interface:
        """What callers of the finished process connect."""
        kept = {value.name for value in process.scalars}
        own = {stream.name for stream in self.streams.ports()}
        pointers = self._pointers()
        used = [stream.name for stream in process.streams if stream.name not in own]
        result: list[Scalar] = [("result", "", None)] if self.has_result else []
        return Interface(
            process,
            [each for each in self.scalars if each[0] in kept],
            [*self.outputs, *result],
            self.streams.of_parameters(),
            [(array.name, base, path) for (base, path), array in self.memory.arrays.items() if array.external],
            [(name, pointers[name.rpartition("_")[0]]) for name in used if name.rpartition("_")[0] in pointers],
            tuple(queue.location for queue in self.streams.queues()),
        )

    def _pointers(self) -> dict[str, str]:
        """The parameters that are memory, by their names in the process."""
        return {self.draft.reserved[parameter]: parameter for parameter in self.draft.context.memories}

    def _given(self, key: Leaf, array: Array) -> Given:
        """A number behind a reference; its argument and its output are noted."""
        base, path = key
        is_output = self._is_output(base, path)
        width, is_signed = self._declared(base, array.width)
        value = Value(self.draft.names.fresh(f"{array.name}_in") if is_output else array.name, width)
        self.scalars.append((value.name, base, path))
        output = ""
        if is_output:
            output = "result" if base == self.draft.context.function.returned else array.name
            self.outputs.append((output, base, path))
        return Given(array.name, value, is_signed, output)

    def _declared(self, base: str, width: int) -> tuple[int, bool]:
        """Width and sign of a number behind a reference of the top; memory pads numbers, ports do not."""
        if self.draft.context.callers:
            return width, False
        if base == self.draft.context.function.returned:
            return self.draft.context.function.declared_result or (width, False)
        types = [
            variable.number for variable in self.draft.context.function.variables.get(base, []) if variable.argument
        ]
        return next((number for number in types if number is not None and number[0] <= width), (width, False))

    def _becomes_values(self, key: Leaf, array: Array) -> bool:
        """Scalars, and arrays in registers that no stage uses."""
        if array.external or array.initial is not None or key[0] not in self.draft.context.objects:
            return False
        if array.name in self.stages.shared:
            return False
        return array.length == 1 or (array.partition is Partition.COMPLETE and array.length <= MOST_ELEMENTS)

    def _is_output(self, base: str, path: Path) -> bool:
        return (base, path) in self.memory.stored and base not in self.draft.context.function.by_value
