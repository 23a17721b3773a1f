# SPDX-License-Identifier: Apache-2.0
"""Random programs about addresses: pointers that are chosen, kept in arrays, compared, and that move."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from openhls.fuzz.expressions import Variable
from openhls.fuzz.function import Function


@dataclass
class Addresses:
    """Writes statements with pointers to the `arrays` of a function, which have one type and one length. A `chosen`
    pointer leads to the start of any of them; a cursor is an index of the first one, as a pointer."""

    function: Function
    arrays: list[Variable]
    chosen: list[str] = field(default_factory=list)
    cursors: list[str] = field(default_factory=list)
    table: str = ""  # an array of two pointers

    @property
    def of(self) -> str:
        return self.arrays[0].type

    @property
    def length(self) -> int:
        return self.arrays[0].length

    def start(self) -> str:
        """Where a chosen pointer may lead."""
        function, rng = self.function, self.function.rng
        names = [each.name for each in self.arrays] + self.chosen
        kind = rng.random()
        if kind < 0.5:
            return f"({function.condition(1)} ? {rng.choice(names)} : {rng.choice(names)})"
        if kind < 0.7 and self.table:
            return f"{self.table}[ap_uint<1>({function.expression(1)})]"
        return rng.choice(names)

    def place(self) -> str:
        """Where a cursor may lead."""
        first = self.arrays[0].name
        if self.cursors and self.function.rng.random() < 0.3:
            return self.function.rng.choice(self.cursors)
        return f"{first} + {self.function.index(self.length, 1)}"

    def declare(self, depth: int) -> None:
        """A pointer, which is an array in expressions, or a cursor, which is a number."""
        function, rng = self.function, self.function.rng
        if rng.random() < 0.6:
            name = function.fresh("p")
            function.put(depth, f"{self.of}* {name} = {self.start()};")
            self.chosen.append(name)
            one = self.arrays[0]
            function.scope.append(Variable(name, one.width, one.is_signed, one.length))
        else:
            name = function.fresh("c")
            function.put(depth, f"{self.of}* {name} = {self.place()};")
            self.cursors.append(name)

    def keep(self, depth: int) -> None:
        self.table = self.function.fresh("table")
        self.function.put(depth, f"{self.of}* {self.table}[2] = {{{self.start()}, {self.start()}}};")

    def statement(self, depth: int) -> None:
        function, rng = self.function, self.function.rng
        kind, first = rng.random(), self.arrays[0].name
        if kind < 0.2 and self.chosen:
            function.put(depth, f"{rng.choice(self.chosen)} = {self.start()};")
        elif kind < 0.3 and len(self.chosen) > 1:
            one, other = rng.sample(self.chosen, 2)
            function.put(depth, f"{{ auto* const kept = {one}; {one} = {other}; {other} = kept; }}")
        elif kind < 0.4 and self.table:
            function.put(depth, f"{self.table}[ap_uint<1>({function.expression(1)})] = {self.start()};")
        elif kind < 0.55 and self.cursors:
            cursor = rng.choice(self.cursors)
            function.put(depth, f"{cursor} = {cursor} + 1 == {first} + {self.length} ? {first} : {cursor} + 1;")
        elif kind < 0.65 and self.cursors:
            function.put(depth, f"if {function.condition(1)} {rng.choice(self.cursors)} = {self.place()};")
        elif kind < 0.85 and self.cursors:
            self.send(depth, rng.choice(self.cursors))
        elif kind < 0.92 and self.cursors:
            function.put(depth, f"*{rng.choice(self.cursors)} = {self.of}({function.expression(2)});")
        else:
            self.walk(depth)

    def send(self, depth: int, cursor: str) -> None:
        """What a cursor leads to, where it is, or how it compares with another one."""
        rng, other = self.function.rng, self.function.rng.choice(self.cursors)
        text = rng.choice(
            (
                f"*{cursor}",
                f"ap_int<20>(int({cursor} - {self.arrays[0].name}))",
                f"ap_int<20>(int({cursor} - {other}))",
                f"ap_uint<1>({cursor} {rng.choice(('==', '!=', '<', '>='))} {other})",
            )
        )
        self.function.put(depth, f"{self.function.outputs[0]}.write(ap_uint<32>({text}));")

    def walk(self, depth: int) -> None:
        """A loop whose counter is a pointer, forwards or backwards; it may end early."""
        function, rng = self.function, self.function.rng
        at, base, known = function.fresh("w"), rng.choice([each.name for each in self.arrays]), len(function.scope)
        steps = (
            f"for ({self.of}* {at} = {base}; {at} != {base} + {self.length}; ++{at}) {{",
            f"for ({self.of}* {at} = {base} + {rng.choice((0, 1, 2))}; {at} < {base} + {self.length}; {at} += 2) {{",
            f"for ({self.of}* {at} = {base} + {self.length - 1}; {at} > {base}; --{at}) {{",
        )
        function.put(depth, rng.choice(steps))
        if rng.random() < 0.4:
            function.pragma("PIPELINE")
        function.put(depth + 1, f"*{at} {rng.choice(('=', '+=', '^='))} {self.of}({function.expression(2)});")
        if rng.random() < 0.4:
            function.put(depth + 1, f"if (*{at} == {self.of}({function.leaf()})) break;")
        del function.scope[known:]
        function.put(depth, "}")


def address_program(rng: random.Random, top: str) -> list[str]:
    """Arrays of one type, pointers to them, and loops that use and change these pointers."""
    k = Variable("k", 17, True, writable=False)
    function = Function(rng, top=top, inputs=["in0"], outputs=["out0"], scope=[k])
    streams = ", ".join(f"hls::stream<ap_uint<32> >& {name}" for name in ("in0", "out0"))
    function.put(0, f"void {top}({streams}, int n, {k.type} k) {{")
    width, is_signed, length = rng.choice((3, 8, 16, 32, 45)), rng.random() < 0.5, rng.choice((4, 8, 16))
    arrays = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        array = Variable(function.fresh("a"), width, is_signed, length)
        kept = "static " if rng.random() < 0.2 else ""
        function.put(1, f"{kept}{array.type} {array.name}[{length}];")
        function.partition(array.name, ("complete", "cyclic factor = 2"))
        function.put(1, f"for (int i = 0; i < {length}; ++i) {array.name}[i] = {array.type}(i * {rng.randint(1, 40)});")
        arrays.append(array)
    function.scope += arrays
    addresses = Addresses(function, arrays)
    for _ in range(rng.randint(1, 3)):
        addresses.declare(1)
    if rng.random() < 0.4:
        addresses.keep(1)
    for _ in range(rng.randint(1, 3)):
        known, name = len(function.scope), function.fresh("i")
        function.put(1, f"for (int {name} = 0; {name} < n; ++{name}) {{")
        if rng.random() < 0.3:
            function.pragma("PIPELINE off")
        function.scope.append(Variable(name, 32, True, writable=False))
        for _ in range(rng.randint(2, 5)):
            addresses.statement(2)
            if rng.random() < 0.6:
                function.body(2, 2, 1, loops=False)
        if rng.random() < 0.2:
            function.leave(2)
            addresses.statement(2)
        del function.scope[known:]
        function.put(1, "}")
        function.write(1)
    return [*function.heads, *function.lines, "}"]
