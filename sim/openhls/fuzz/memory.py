# SPDX-License-Identifier: Apache-2.0
"""Random accesses to memory behind pointers: elements of all widths, structs, bursts and single elements."""

from __future__ import annotations

import random
from dataclasses import dataclass

from openhls.fuzz.expressions import Variable
from openhls.fuzz.function import Function

WIDTHS = ((32, 32), (64, 16), (128, 8), (20, 12), (6, 50), (512, 32), (100, 1), (24, 256))
C_TYPES = ("signed char", "unsigned short", "int", "unsigned", "long long")


@dataclass(frozen=True)
class Pointer:
    """A pointer argument of the top: how it is declared, and the fields of its elements with their types; a number has
    the field ""."""

    name: str
    declared: str
    fields: tuple[tuple[str, str], ...]

    @property
    def writable(self) -> bool:
        return not self.declared.startswith("const ")


def pointers(rng: random.Random, top: str, heads: list[str]) -> list[Pointer]:
    """One pointer to read from, and one to read from and to write to; definitions of structs go to `heads`."""
    kind = rng.random()
    if kind < 0.25:
        read, write = rng.choice(C_TYPES), rng.choice(C_TYPES)
        qualifier = rng.choice(("const", "const volatile"))
        return [
            Pointer("mem_in", f"{qualifier} {read}* mem_in", (("", read),)),
            Pointer("mem_out", f"{rng.choice(('', 'volatile '))}{write}* mem_out", (("", write),)),
        ]
    if kind < 0.5:
        fields = rng.choice(
            (
                (("low", "short"), ("middle", "signed char"), ("top", "unsigned char"), ("high", "int")),
                (("one", "int"), ("two", "int"), ("three", "unsigned")),
                (("first", "unsigned short"), ("second", "short")),
            )
        )
        members = "".join(f"  {of} {name};\n" for name, of in fields)
        heads.append(f"struct {top}_record {{\n{members}}};")
        known = tuple((f".{name}", of) for name, of in fields)
        return [
            Pointer("mem_in", f"const {top}_record* mem_in", known),
            Pointer("mem_out", f"{top}_record* mem_out", known),
        ]
    sign, (wide, narrow) = rng.choice(("", "u")), rng.choice(WIDTHS)
    read, write = f"ap_{sign}int<{wide}>", f"ap_{sign}int<{narrow}>"
    return [
        Pointer("mem_in", f"const {read}* mem_in", (("", read),)),
        Pointer("mem_out", f"{write}* mem_out", (("", write),)),
    ]


@dataclass
class Transfers:
    """Writes loops that move elements between `known` pointers and the other variables of a function."""

    function: Function
    known: list[Pointer]

    def loop(self, depth: int) -> None:
        """A burst, if clang and the compiler see one, else element by element."""
        if self.function.rng.random() < 0.25:
            self.nest(depth)
            return
        function, rng, scope = self.function, self.function.rng, len(self.function.scope)
        name, step = function.fresh("i"), rng.choice((1, 1, 2, 3, 4))
        heads = (
            f"int {name} = 0; {name} < n; {name} += {step}",
            f"int {name} = {rng.randint(0, 3)}; {name} <= n; {name} += {step}",
            f"int {name} = n - 1; {name} >= 0; {name} -= {step}",
            f"int {name} = {rng.choice((0, -4))}; {name} != {rng.choice((4, 8))}; {name} += {rng.choice((1, 2, 4))}",
            f"unsigned {name} = 0; {name} < unsigned(n); ++{name}",
            f"ap_uint<8> {name} = {rng.choice((0, 3))}; {name} < n; ++{name}",
        )
        function.lines.append(f"{function.fresh('loop')}:")
        function.put(depth, f"for ({rng.choice(heads)}) {{")
        function.scope.append(Variable(name, 32, True, writable=False))
        scale = rng.choice(("", "", "2 * ", "4 * ", "-", "-3 * ", "k.to_int() % 3 * "))
        places = [f"60 + {scale}int({name})", f"int({name}) + 24"]
        if rng.random() < 0.3:
            function.put(depth + 1, f"if {function.condition(0)} {{")
            self.transfer(depth + 2, places)
            function.put(depth + 1, "}")
        else:
            self.transfer(depth + 1, places)
        if rng.random() < 0.1:
            function.leave(depth + 1)
        del function.scope[scope:]
        function.put(depth, "}")

    def nest(self, depth: int) -> None:
        """Rows of a power of two of elements, or of another number of them."""
        function, rng, scope = self.function, self.function.rng, len(self.function.scope)
        row, column, pitch = function.fresh("i"), function.fresh("i"), rng.choice((4, 8, 10))
        function.put(depth, f"for (int {row} = 0; {row} < n; ++{row}) {{")
        function.put(depth + 1, f"for (int {column} = 0; {column} < {rng.choice((pitch, 'n'))}; ++{column}) {{")
        function.scope += [Variable(name, 32, True, writable=False) for name in (row, column)]
        self.transfer(depth + 2, [f"{row} * {pitch} + {column}" if pitch != 10 else f"{column} * 10 + {row}"])
        del function.scope[scope:]
        function.put(depth + 1, "}")
        function.put(depth, "}")

    def transfer(self, depth: int, places: list[str]) -> None:
        """One or two elements of memory, to it or from it, at one of `places` or anywhere."""
        function, rng = self.function, self.function.rng
        for _ in range(rng.choice((1, 1, 2))):
            pointer = rng.choice(self.known)
            at = rng.choice([*places, f"ap_uint<6>({function.expression(1)}).to_int()"])
            field, kind = rng.choice(pointer.fields)
            element = f"{pointer.name}[{at}]"
            if pointer.writable and rng.random() < 0.6:
                if field and rng.random() < 0.5:
                    self.store_whole(depth, pointer, element)
                else:
                    sign = rng.choice(("=", "+=", "^="))
                    function.put(depth, f"{element}{field} {sign} {self.number(kind)};")
            else:
                function.put(depth, f"{rng.choice(function.outputs)}.write(ap_uint<32>({element}{field}));")

    def store_whole(self, depth: int, pointer: Pointer, element: str) -> None:
        """A struct: field by field, or a copy of another one with another field."""
        function, rng = self.function, self.function.rng
        if rng.random() < 0.5:
            for field, kind in pointer.fields:
                function.put(depth, f"{element}{field} = {self.number(kind)};")
            return
        field, kind = rng.choice(pointer.fields)
        function.put(depth, "{")
        function.put(depth + 1, f"auto one = {rng.choice(self.known).name}[n + {rng.randint(0, 40)}];")
        function.put(depth + 1, f"one{field} ^= {self.number(kind)};")
        function.put(depth + 1, f"{element} = one;")
        function.put(depth, "}")

    def number(self, kind: str) -> str:
        """A random value of a type."""
        value = self.function.expression(2)
        return f"{kind}({value})" if kind.startswith("ap_") else f"({kind})ap_int<47>({value}).to_int64()"
