# SPDX-License-Identifier: Apache-2.0
"""A process and its interface, of the regions that a function became.

Scalars behind references come in and go out as values; what the function keeps of them in between is values, too.
"""

from __future__ import annotations

from dataclasses import replace

from openhls.frontend.addresses import Path
from openhls.frontend.builder import Builder
from openhls.frontend.bursts import Bursts
from openhls.frontend.context import Context
from openhls.frontend.memory import Memory
from openhls.frontend.promote import MOST_ELEMENTS, Promotion, State, slots
from openhls.frontend.stages import Interface, Stages
from openhls.frontend.streams import Streams
from openhls.frontend.tidy import live_values, tidy
from openhls.frontend.wrapping import Wrapping
from openhls.ir import Array, Block, Const, Opcode, Operand, Partition, Process, Region, Stream, Value

Leaf = tuple[str, Path]  # the object and the way to a number in it
Scalar = tuple[str, str, Path | None]  # name in the process, parameter, leaf (None: the parameter itself)


class Assembly:
    """Puts one process together. `arguments` are the values of its numbers, `scalars` where they come from."""

    def __init__(self, context: Context, builder: Builder, memory: Memory, streams: Streams, stages: Stages) -> None:
        self._function = context.function
        self._context = context
        self._builder = builder
        self._memory = memory
        self._streams = streams
        self._stages = stages
        self._is_top = not context.callers

    def run(
        self,
        name: str,
        regions: list[Region],
        arguments: list[Value],
        scalars: list[Scalar],
        result: Operand | None,
        wrapping: Wrapping,
    ) -> Interface:
        leaves = {key: array for key, array in self._memory.arrays.items() if self._becomes_values(key, array)}
        given = [(key, array) for key, array in leaves.items() if self._context.objects[key[0]].external]
        body, outputs = self._with_values(regions, leaves, given, arguments, scalars, result)
        process = Process(
            name,
            tuple(arguments),
            self._streams.ports(),
            tuple(array for key, array in self._memory.arrays.items() if key not in leaves),
            body,
            tuple((output, operand) for output, _, _, operand in outputs),
            self._function.location,
        )
        pointers = {self._memory.reserved[parameter]: parameter for parameter in self._context.memories}
        process, used = self._with_bursts(process, set(pointers), wrapping)
        # Numbers stay even if they are not used; a pointer without accesses is no port.
        plain = {scalar for scalar, _, path in scalars if path is None and scalar not in pointers}
        needed = live_values(process) | {value for value in arguments if value.name in plain}
        process = replace(process, scalars=tuple(value for value in arguments if value in needed))
        kept = {value.name for value in process.scalars}
        return Interface(
            process,
            [each for each in scalars if each[0] in kept],
            [(output, base, path) for output, base, path, _ in outputs],
            self._streams.of_parameters(),
            [(array.name, base, path) for (base, path), array in self._memory.arrays.items() if array.external],
            [(stream, pointers[stream.rpartition("_")[0]]) for stream in used],
        )

    def _with_values(
        self,
        regions: list[Region],
        leaves: dict[Leaf, Array],
        given: list[tuple[Leaf, Array]],
        arguments: list[Value],
        scalars: list[Scalar],
        result: Operand | None,
    ) -> tuple[tuple[Region, ...], list[tuple[str, str, Path | None, Operand]]]:
        """The body with `leaves` as values, and the outputs; what comes in is added to `arguments` and `scalars`."""
        state: State = {slot: Const(array.width, 0) for array in leaves.values() for slot in slots(array)}
        for (base, path), array in given:
            is_output = self._is_output(base, path)
            width, is_signed = self._declared(base, array.width)
            value = Value(self._builder.names.fresh(f"{array.name}_in") if is_output else array.name, width)
            extend = Opcode.SEXT if is_signed else Opcode.ZEXT
            state[slots(array)[0]] = self._builder.make(extend, array.width, value)
            scalars.append((value.name, base, path))
            arguments.append(value)
        entry = self._block("entry")
        promotion = Promotion(self._builder.names, list(leaves.values()), state)
        body = (*entry, *promotion.regions(tuple(regions)))
        outputs: list[tuple[str, str, Path | None, Operand]] = []
        for (base, path), array in given:
            if self._is_output(base, path):
                width, _ = self._declared(base, array.width)
                operand = self._builder.make(Opcode.EXTRACT, width, promotion.state[slots(array)[0]])
                name = "result" if base == self._function.returned else array.name
                outputs.append((name, base, path, operand))
        body = (*body, *self._block("exit"))
        if result is not None:
            outputs.append(("result", "", None, promotion.value(result)))
        return body, outputs

    def _block(self, label: str) -> list[Block]:
        """The operations that the builder holds, if there are any."""
        operations = self._builder.take()
        return [Block(self._builder.names.fresh(label), operations, self._function.location)] if operations else []

    def _with_bursts(
        self, process: Process, pointers: set[str], wrapping: Wrapping
    ) -> tuple[Process, dict[str, Stream]]:
        """The process with streams in place of accesses to memory, and those streams by name."""
        lent = self._stages.lent
        widths = {name.rpartition("_")[0]: each.width for name, each in lent.items() if name.endswith(("_r", "_w"))}
        bursts = Bursts(self._builder.names, pointers, wrapping, widths)
        process = tidy(bursts.rewrite(tidy(process)))
        used = lent | bursts.streams
        return replace(process, streams=(*process.streams, *used.values())), used

    def _declared(self, base: str, width: int) -> tuple[int, bool]:
        """Width and sign of a number behind a reference of the top; memory pads numbers, ports do not."""
        if not self._is_top:
            return width, False
        if base == self._function.returned:
            return self._function.declared_result or (width, False)
        types = [variable.number for variable in self._function.variables.get(base, []) if variable.argument]
        return next((number for number in types if number is not None and number[0] <= width), (width, False))

    def _becomes_values(self, key: Leaf, array: Array) -> bool:
        """Scalars, and arrays in registers that no stage uses."""
        if array.external or array.initial is not None or key[0] not in self._context.objects:
            return False
        if array.name in self._stages.shared:
            return False
        return array.length == 1 or (array.partition is Partition.COMPLETE and array.length <= MOST_ELEMENTS)

    def _is_output(self, base: str, path: Path) -> bool:
        return (base, path) in self._memory.stored and base not in self._function.by_value
