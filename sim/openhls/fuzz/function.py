# SPDX-License-Identifier: Apache-2.0
"""A random C++ function: its statements and expressions, each within the subset and within its ranges."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")


@dataclass(frozen=True)
class Variable:
    """A scalar or, with `length`, an array of a power of two of elements."""

    name: str
    width: int
    is_signed: bool
    length: int = 0
    writable: bool = True

    @property
    def type(self) -> str:
        return f"ap_{'' if self.is_signed else 'u'}int<{self.width}>"


K = Variable("k", 17, True, writable=False)  # an argument; an int where functions pass it on


@dataclass
class Function:
    """Writes one function. Its streams are `inputs` and `outputs`, of 32-bit words; `pointers` lead to memory, of which
    only those without `const` may be stored to."""

    rng: random.Random
    inputs: list[str]
    outputs: list[str]
    pointers: dict[str, str] = field(default_factory=dict)  # by name, the type of an element
    lines: list[str] = field(default_factory=list)
    scope: list[Variable] = field(default_factory=list)
    count: int = 0

    def put(self, depth: int, line: str) -> None:
        self.lines.append("  " * depth + line)

    def pragma(self, text: str) -> None:
        self.lines.append(f"#pragma HLS {text}")

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # ---- expressions ----

    def scalars(self, writable: bool = False) -> list[Variable]:
        return [v for v in self.scope if not v.length and (v.writable or not writable)]

    def arrays(self) -> list[Variable]:
        return [v for v in self.scope if v.length]

    def index(self, array: Variable, depth: int) -> str:
        """An index within the array, often the plain counter of a loop."""
        bits = (array.length - 1).bit_length()
        counters = [v.name for v in self.scalars() if not v.writable]
        if counters and self.rng.random() < 0.5:
            offset = self.rng.choice(("", "", " + 1", " - 1", " + 3"))
            return f"ap_uint<{bits}>({self.rng.choice(counters)}{offset})"
        return f"ap_uint<{bits}>({self.expression(depth - 1)})"

    def cast(self, text: str) -> str:
        width = self.rng.choice((1, 3, 8, 13, 20, 32, 33, 47))
        return f"ap_{self.rng.choice(('', 'u'))}int<{width}>({text})"

    def leaf(self) -> str:
        names = [v.name for v in self.scalars()]
        if names and self.rng.random() < 0.8:
            return self.cast(self.rng.choice(names))
        return f"ap_int<20>({self.rng.choice((0, 1, -1, self.rng.randint(-(1 << 19), (1 << 19) - 1)))})"

    def expression(self, depth: int) -> str:
        """An ap_int or ap_uint of at most 47 bits."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return self.leaf()
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        kind = rng.randrange(13)
        if kind < 5:
            return self.cast(f"{a} {rng.choice('+-*&|^+-')} {b}")
        if kind == 5:
            return self.cast(f"{a} {rng.choice(('<<', '>>'))} ap_uint<{rng.choice((2, 3, 5))}>({b})")
        if kind == 6:
            return f"ap_uint<1>({a} {rng.choice(COMPARISONS)} {b})"
        if kind == 7:
            return f"({self.condition(depth - 1)} ? ap_int<33>({a}) : ap_int<33>({b}))"
        if kind == 8 and self.arrays():
            array = rng.choice(self.arrays())
            return self.cast(f"{array.name}[{self.index(array, depth)}]")
        if kind == 9 and rng.random() < 0.3:
            divisor = rng.choice((f"(ap_uint<9>({b}) | ap_uint<9>(1))", f"ap_int<9>({rng.choice((2, 3, -4, 7, 60))})"))
            return self.cast(f"ap_int<13>({a}) {rng.choice('/%')} {divisor}")
        if kind == 10:
            high = rng.randrange(24)
            return f"ap_uint<{high + 1}>(ap_uint<32>({a}).range({high}, 0))"
        if kind == 11:
            return self.cast(f"({self.part(a)}, {self.part(b)}, {self.part(self.leaf())})")
        return self.cast(f"{rng.choice('-~')}{a}")

    def part(self, text: str) -> str:
        """Part of a concatenation: a number, some of its bits, or one of them."""
        rng = self.rng
        width = rng.choice((1, 7, 13, 15))
        high = rng.randrange(width)
        low = rng.randint(0, high)
        number = f"ap_{rng.choice(('', 'u'))}int<{width}>({text})"
        return rng.choice((number, f"{number}.range({high}, {low})", f"{number}({high}, {low})"))

    def condition(self, depth: int) -> str:
        text = f"{self.expression(depth)} {self.rng.choice(COMPARISONS)} {self.expression(depth)}"
        if self.rng.random() < 0.15:
            text += f" {self.rng.choice(('&&', '||'))} {self.expression(0)} != {self.expression(0)}"
        return f"({text})"

    # ---- statements ----

    def declare(self, depth: int, value: str) -> None:
        variable = Variable(self.fresh("v"), self.rng.choice((1, 5, 16, 32, 40)), self.rng.random() < 0.5)
        self.put(depth, f"{variable.type} {variable.name} = {value};")
        self.scope.append(variable)

    def keep(self, depth: int) -> None:
        """A number that one call hands to the next."""
        variable = Variable(self.fresh("s"), self.rng.choice((1, 7, 16, 40)), self.rng.random() < 0.5)
        self.put(depth, f"static {variable.type} {variable.name} = {self.rng.randint(-9, 9)};")
        self.scope.append(variable)

    def assign(self, depth: int) -> None:
        targets = self.scalars(writable=True)
        if targets:
            variable = self.rng.choice(targets)
            sign = self.rng.choice(("=", "=", "+=", "^="))
            self.put(depth, f"{variable.name} {sign} {variable.type}({self.expression(2)});")

    def store(self, depth: int) -> None:
        if self.arrays():
            array = self.rng.choice(self.arrays())
            self.put(depth, f"{array.name}[{self.index(array, 2)}] = {array.type}({self.expression(2)});")

    def read(self, depth: int) -> None:
        if self.inputs:
            self.declare(depth, f"{self.rng.choice(self.inputs)}.read()")

    def write(self, depth: int) -> None:
        if self.outputs:
            self.put(depth, f"{self.rng.choice(self.outputs)}.write(ap_uint<32>({self.expression(2)}));")

    def branch(self, depth: int, level: int) -> None:
        known = len(self.scope)
        self.put(depth, f"if {self.condition(1)} {{")
        self.body(depth + 1, level + 1, self.rng.randint(1, 3), loops=False)
        del self.scope[known:]
        if self.rng.random() < 0.4:
            self.put(depth, "} else {")
            self.body(depth + 1, level + 1, self.rng.randint(1, 2), loops=False)
            del self.scope[known:]
        self.put(depth, "}")

    def choice(self, depth: int, level: int) -> None:
        known = len(self.scope)
        self.put(depth, f"switch (ap_uint<2>({self.expression(1)}).to_int()) {{")
        for label in ("case 0:", "case 2:", "default:"):
            self.put(depth + 1, f"{label} {{")
            self.body(depth + 2, level + 1, self.rng.randint(1, 2), loops=False)
            del self.scope[known:]
            self.put(depth + 2, "break;")
            self.put(depth + 1, "}")
        self.put(depth, "}")

    def leave(self, depth: int) -> None:
        self.put(depth, f"if {self.condition(1)} {self.rng.choice(('break', 'continue'))};")

    def element(self, places: list[str]) -> str:
        """An element of memory in range: by some arithmetic on a counter, or anywhere."""
        pointer = self.rng.choice(list(self.pointers))
        counter, rng = self.rng.choice(places), self.rng
        scale = rng.choice(("", "", "2 * ", "4 * ", "-", "-3 * ", "k.to_int() % 3 * "))
        at = rng.choice((f"60 + {scale}{counter}", f"{counter} + 24", f"ap_uint<6>({self.expression(1)}).to_int()"))
        return f"{pointer}[{at}]"

    def memory(self, depth: int) -> None:
        """A loop that moves elements: a burst, if clang and the compiler see one, else element by element."""
        known, name, rng = len(self.scope), self.fresh("i"), self.rng
        step = rng.choice((1, 1, 2, 3, 4))
        heads = (
            f"int {name} = 0; {name} < n; {name} += {step}",
            f"int {name} = {rng.randint(0, 3)}; {name} <= n; {name} += {step}",
            f"int {name} = n - 1; {name} >= 0; {name} -= {step}",
            f"int {name} = {rng.choice((0, -4))}; {name} != {rng.choice((4, 8))}; {name} += {rng.choice((1, 2, 4))}",
            f"unsigned {name} = 0; {name} < unsigned(n); ++{name}",
            f"ap_uint<8> {name} = {rng.choice((0, 3))}; {name} < n; ++{name}",
        )
        self.lines.append(f"{self.fresh('loop')}:")
        self.put(depth, f"for ({rng.choice(heads)}) {{")
        self.scope.append(Variable(name, 32, True, writable=False))
        places = [f"int({name})"]
        if rng.random() < 0.3:
            self.put(depth + 1, f"if {self.condition(0)} {{")
            self.transfer(depth + 2, places)
            self.put(depth + 1, "}")
        else:
            self.transfer(depth + 1, places)
        if rng.random() < 0.1:
            self.leave(depth + 1)
        del self.scope[known:]
        self.put(depth, "}")

    def transfer(self, depth: int, places: list[str]) -> None:
        """One or two elements of memory, to it or from it."""
        for _ in range(self.rng.choice((1, 1, 2))):
            element = self.element(places)
            kind = self.pointers[element.partition("[")[0]]
            if kind.startswith("const ") or self.rng.random() < 0.4:
                self.put(depth, f"{self.rng.choice(self.outputs)}.write(ap_uint<32>({element}));")
            else:
                sign = self.rng.choice(("=", "+=", "^="))
                self.put(depth, f"{element} {sign} {kind}({self.expression(2)});")

    def loop(self, depth: int, level: int) -> None:
        """A counted loop; constant bounds may be unrolled, runtime ones may have no iteration."""
        known, name = len(self.scope), self.fresh("i")
        count = self.rng.randint(1, 6)
        bound = self.rng.choice(("n", "n", str(count)))
        step = self.rng.choice((1, 1, 1, 2))
        self.lines.append(f"{self.fresh('loop')}:")
        head = self.rng.choice((f"{name} = 0; {name} < {bound}", f"{name} = {bound} - 1; {name} >= 0"))
        advance = f"{name} {'-' if '>=' in head else '+'}= {step}"
        self.put(depth, f"for (int {head}; {advance}) {{")
        inner = level < 2 and self.rng.random() < (0.35, 0.2)[level]
        if not inner:
            pragmas = ["", "PIPELINE", "PIPELINE II = 1", "PIPELINE II = 3", "PIPELINE off", "UNROLL factor = 2"]
            if bound != "n":
                pragmas.append("UNROLL")
            pragma = self.rng.choice(pragmas)
            if pragma:
                self.pragma(pragma)
        self.scope.append(Variable(name, 32, True, writable=False))
        self.body(depth + 1, level + 1, self.rng.randint(2, 5), loops=inner)
        if inner:
            self.loop(depth + 1, level + 1)
            if self.rng.random() < 0.5:
                self.body(depth + 1, level + 1, self.rng.randint(1, 2), loops=False)
        elif self.rng.random() < 0.15:
            self.leave(depth + 1)
            self.body(depth + 1, level + 1, 1, loops=False)
        del self.scope[known:]
        self.put(depth, "}")

    def body(self, depth: int, level: int, statements: int, *, loops: bool) -> None:
        for _ in range(statements):
            kind = self.rng.randrange(13)
            if kind < 3:
                self.assign(depth)
            elif kind < 5:
                self.store(depth)
            elif kind < 7:
                self.read(depth)
            elif kind < 9:
                self.write(depth)
            elif kind == 9:
                self.declare(depth, self.expression(2))
            elif kind == 10 and level < 3:
                self.branch(depth, level)
            elif kind == 11 and level < 3 and self.rng.random() < 0.5:
                self.choice(depth, level)
            elif loops:
                self.loop(depth, level)

    def array(self, depth: int) -> None:
        length = self.rng.choice((4, 8, 16, 32))
        array = Variable(self.fresh("a"), self.rng.choice((3, 16, 32, 45)), self.rng.random() < 0.5, length)
        kept = self.rng.random() < 0.25  # from one call to the next
        values = ", ".join(str(i * 37 % 5 - i) for i in range(length if self.rng.random() < 0.7 else 1))
        self.put(
            depth,
            f"static {array.type} {array.name}[{length}] = {{{values}}};"
            if kept
            else f"{array.type} {array.name}[{length}];",
        )
        partition = self.rng.choice(("", "", "complete", "cyclic factor = 2", "block factor = 4"))
        if partition:
            self.pragma(f"ARRAY_PARTITION variable = {array.name} {partition}")
        if not kept:
            self.put(depth, f"for (int i = 0; i < {length}; ++i) {array.name}[i] = {array.type}(i * 37 + 5);")
        self.scope.append(array)
