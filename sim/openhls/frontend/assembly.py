# SPDX-License-Identifier: Apache-2.0
"""A process and its interface, of the regions that a function became.

Scalars behind references come in and go out as values; what the function keeps of them in between is values, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from openhls.frontend.addresses import Path
from openhls.frontend.draft import Draft
from openhls.frontend.memory import Memory
from openhls.frontend.stages import Interface, Stages
from openhls.frontend.streams import Streams
from openhls.ir import Array, Block, Const, Opcode, Operand, Partition, Process, Region, Value
from openhls.passes.bursts import Bursts
from openhls.passes.promote import MOST_ELEMENTS, Promotion, State, slots
from openhls.passes.queues import Queues
from openhls.passes.tidy import live_values
from openhls.passes.wrapping import Wrapping
from openhls.pipeline import finish_process

Leaf = tuple[str, Path]  # the object and the way to a number in it
Scalar = tuple[str, str, Path | None]  # name in the process, parameter, leaf (None: the parameter itself)


@dataclass
class Assembly:
    """Puts one process together. `arguments` are the values of its numbers, `scalars` where they come from."""

    draft: Draft
    memory: Memory
    streams: Streams
    stages: Stages
    wrapping: Wrapping
    arguments: list[Value] = field(default_factory=list)
    scalars: list[Scalar] = field(default_factory=list)

    def add_number(self, parameter: str, width: int) -> Value:
        """A parameter that is a number, or the address in a pointer."""
        value = Value(self.draft.reserved[parameter], width)
        self.arguments.append(value)
        self.scalars.append((value.name, parameter, None))
        return value

    def run(self, regions: list[Region], result: Operand | None) -> Interface:
        context, function = self.draft.context, self.draft.context.function
        leaves = {key: array for key, array in self.memory.arrays.items() if self._becomes_values(key, array)}
        given = [(key, array) for key, array in leaves.items() if context.objects[key[0]].external]
        queues = Queues(self.draft.names, self.streams.queues(), regions)
        values = [*leaves.values(), *queues.values]
        body, outputs = self._with_values(queues.run(regions), values, given, result)
        process = Process(
            self.draft.name,
            tuple(self.arguments),
            (*self.streams.ports(), *self.stages.lent.values()),
            (*(array for key, array in self.memory.arrays.items() if key not in leaves), *queues.memories),
            body,
            tuple((output, operand) for output, _, _, operand in outputs),
            function.location,
            self._variables(values),
        )
        pointers = {self.draft.reserved[parameter]: parameter for parameter in context.memories}
        process = finish_process(process, self._bursts(frozenset(pointers)), self.stages.callees())
        # Numbers stay even if they are not used; a pointer without accesses is no port.
        plain = {scalar for scalar, _, path in self.scalars if path is None and scalar not in pointers}
        needed = live_values(process) | {value for value in self.arguments if value.name in plain}
        process = replace(process, scalars=tuple(value for value in self.arguments if value in needed))
        kept = {value.name for value in process.scalars}
        own = {stream.name for stream in self.streams.ports()}
        used = [stream.name for stream in process.streams if stream.name not in own]
        return Interface(
            process,
            [each for each in self.scalars if each[0] in kept],
            [(output, base, path) for output, base, path, _ in outputs],
            self.streams.of_parameters(),
            [(array.name, base, path) for (base, path), array in self.memory.arrays.items() if array.external],
            [(stream, pointers[stream.rpartition("_")[0]]) for stream in used],
            tuple(queue.location for queue in self.streams.queues()),
        )

    def _variables(self, promoted: list[Array]) -> dict[str, str]:
        """The names of values that are C++ variables, arguments and what became of arrays among them."""
        slot_names = {name: name for array in promoted for name in (array.name, *slots(array))}
        return self.draft.variables | slot_names | {value.name: value.name for value in self.arguments}

    def _bursts(self, pointers: frozenset[str]) -> Bursts:
        lent = self.stages.lent
        widths = {name.rpartition("_")[0]: each.width for name, each in lent.items() if name.endswith(("_r", "_w"))}
        return Bursts(self.draft.names, pointers, self.wrapping, widths)

    def _with_values(
        self,
        regions: list[Region],
        promoted: list[Array],
        given: list[tuple[Leaf, Array]],
        result: Operand | None,
    ) -> tuple[tuple[Region, ...], list[tuple[str, str, Path | None, Operand]]]:
        """The body with the arrays `promoted` as values, and the outputs; what comes in is added to the arguments."""
        state: State = {slot: Const(array.width, 0) for array in promoted for slot in slots(array)}
        for (base, path), array in given:
            is_output = self._is_output(base, path)
            width, is_signed = self._declared(base, array.width)
            value = Value(self.draft.names.fresh(f"{array.name}_in") if is_output else array.name, width)
            extend = Opcode.SEXT if is_signed else Opcode.ZEXT
            state[slots(array)[0]] = self.draft.builder.make(extend, array.width, value)
            self.scalars.append((value.name, base, path))
            self.arguments.append(value)
        entry = self._block("entry")
        promotion = Promotion(self.draft.names, promoted, state)
        body = (*entry, *promotion.regions(tuple(regions)))
        outputs: list[tuple[str, str, Path | None, Operand]] = []
        for (base, path), array in given:
            if self._is_output(base, path):
                width, _ = self._declared(base, array.width)
                operand = self.draft.builder.make(Opcode.EXTRACT, width, promotion.state[slots(array)[0]])
                name = "result" if base == self.draft.context.function.returned else array.name
                outputs.append((name, base, path, operand))
        body = (*body, *self._block("exit"))
        if result is not None:
            outputs.append(("result", "", None, promotion.value(result)))
        return body, outputs

    def _block(self, label: str) -> list[Block]:
        """The operations that the builder holds, if there are any."""
        operations = self.draft.builder.take()
        return (
            [Block(self.draft.names.fresh(label), operations, self.draft.context.function.location)]
            if operations
            else []
        )

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
