# SPDX-License-Identifier: Apache-2.0
"""A random C++ function: its variables, statements and loops, each within the subset."""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.fuzz.expressions import Expressions, Variable

PARTITIONS = ("complete", "cyclic factor = 2", "block factor = 4")
ROW_PARTITIONS = ("dim = 1 complete", "dim = 2 complete", "dim = 0 complete")


@dataclass
class Function(Expressions):
    """Writes one function of the program `top`. Its streams are `inputs` and `outputs`, of 32-bit words."""

    top: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)  # definitions in front of it
    records: dict[str, int] = field(default_factory=dict)  # arrays of structs, and their lengths

    # ---- variables ----

    def declare(self, depth: int, value: str) -> None:
        variable = Variable(self.fresh("v"), self.rng.choice((1, 5, 16, 32, 40)), self.rng.random() < 0.5)
        self.put(depth, f"{variable.type} {variable.name} = {value};")
        self.scope.append(variable)

    def keep(self, depth: int) -> None:
        """A number that one call hands to the next."""
        variable = Variable(self.fresh("s"), self.rng.choice((1, 7, 16, 40)), self.rng.random() < 0.5)
        self.put(depth, f"static {variable.type} {variable.name} = {self.rng.randint(-9, 9)};")
        self.scope.append(variable)

    def array(self, depth: int) -> None:
        """An array of numbers, of rows or of structs; some keep their numbers from one call to the next."""
        kind = self.rng.random()
        if kind < 0.2:
            self.rows(depth)
        elif kind < 0.35:
            self.structs(depth)
        else:
            self.numbers(depth)

    def numbers(self, depth: int) -> None:
        length = self.rng.choice((4, 8, 16, 32))
        array = Variable(self.fresh("a"), self.rng.choice((3, 16, 32, 45)), self.rng.random() < 0.5, length)
        kept = self.rng.random() < 0.25
        values = ", ".join(str(i * 37 % 5 - i) for i in range(length if self.rng.random() < 0.7 else 1))
        self.put(
            depth,
            f"static {array.type} {array.name}[{length}] = {{{values}}};"
            if kept
            else f"{array.type} {array.name}[{length}];",
        )
        self.partition(array.name, PARTITIONS)
        if not kept:
            self.put(depth, f"for (int i = 0; i < {length}; ++i) {array.name}[i] = {array.type}(i * 37 + 5);")
        self.scope.append(array)

    def rows(self, depth: int) -> None:
        rows, columns = self.rng.choice((2, 4)), self.rng.choice((4, 8))
        width, is_signed = self.rng.choice((7, 16, 33)), self.rng.random() < 0.5
        array = Variable(self.fresh("m"), width, is_signed, rows, columns=columns)
        self.put(depth, f"{array.type} {array.name}[{rows}][{columns}];")
        self.partition(array.name, ROW_PARTITIONS)
        self.put(depth, f"for (int i = 0; i < {rows}; ++i)")
        value = f"{array.type}(i * 37 - j * 11)"
        self.put(depth + 1, f"for (int j = 0; j < {columns}; ++j) {array.name}[i][j] = {value};")
        self.scope.append(array)

    def structs(self, depth: int) -> None:
        name, length = self.fresh("p"), self.rng.choice((2, 4, 8))
        kind = f"{self.top}_{name}"
        low = Variable(name, self.rng.choice((1, 8, 20)), self.rng.random() < 0.5, length, member=".low")
        high = Variable(name, self.rng.choice((12, 32, 40)), self.rng.random() < 0.5, length, member=".high")
        self.heads.append(f"struct {kind} {{\n  {low.type} low;\n  {high.type} high;\n}};")
        self.put(depth, f"{kind} {name}[{length}];")
        self.partition(name, ("complete",))
        self.put(depth, f"for (int i = 0; i < {length}; ++i) {{")
        self.put(depth + 1, f"{name}[i].low = {low.type}(i * 5 - 3);")
        self.put(depth + 1, f"{name}[i].high = {high.type}(7 - i * 9);")
        self.put(depth, "}")
        self.scope += [low, high]
        self.records[name] = length

    def partition(self, name: str, forms: tuple[str, ...]) -> None:
        form = self.rng.choice(("", "", *forms))
        if form:
            self.pragma(f"{self.rng.choice(('ARRAY_PARTITION', 'ARRAY_RESHAPE'))} variable = {name} {form}")

    # ---- statements ----

    def assign(self, depth: int) -> None:
        targets = self.scalars(writable=True)
        if targets:
            variable = self.rng.choice(targets)
            sign = self.rng.choice(("=", "=", "+=", "^="))
            self.put(depth, f"{variable.name} {sign} {variable.type}({self.expression(2)});")

    def assign_bits(self, depth: int) -> None:
        """To some bits of a number, or to two numbers at once."""
        targets = self.scalars(writable=True)
        if not targets:
            return
        variable = self.rng.choice(targets)
        high = self.rng.randrange(variable.width)
        low = self.rng.randint(0, high)
        part = f"{variable.name}.range({high}, {low})"
        others = [each for each in targets if each != variable and each.width + variable.width <= 64]
        if others and self.rng.random() < 0.5:
            part = f"({self.rng.choice(others).name}, {self.rng.choice((variable.name, part))})"
        elif self.rng.random() < 0.2:
            self.put(depth, f"{variable.name}[{high}] = {self.condition(1)};")
            return
        self.put(depth, f"{part} = ap_uint<64>({self.expression(2)});")

    def store(self, depth: int) -> None:
        if self.arrays():
            array = self.rng.choice(self.arrays())
            self.put(depth, f"{self.element(array, 2)} = {array.type}({self.expression(2)});")

    def copy(self, depth: int) -> None:
        """A struct as a whole."""
        known = {array.name for array in self.arrays()}
        if records := [name for name in self.records if name in known]:
            name = self.rng.choice(records)
            to, start = (self.index(self.records[name], 1) for _ in range(2))
            self.put(depth, f"{name}[{to}] = {name}[{start}];")

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

    # ---- loops ----

    def loop(self, depth: int, level: int) -> None:
        """A counted loop; constant bounds may be unrolled, runtime ones may have no iteration."""
        known, name, rng = len(self.scope), self.fresh("i"), self.rng
        bound = rng.choice(("n", "n", str(rng.randint(1, 6))))
        step = rng.choice((1, 1, 1, 2))
        last = "}"
        head = rng.choice((f"{name} = 0; {name} < {bound}", f"{name} = {bound} - 1; {name} >= 0"))
        advance = f"{name} {'-' if '>=' in head else '+'}= {step}"
        if rng.random() < 0.1:  # one iteration at least
            self.put(depth, f"int {name} = 0;")
            last = f"}} while (++{name} < {bound});"
        self.lines.append(f"{self.fresh('loop')}:")
        self.put(depth, "do {" if last != "}" else f"for (int {head}; {advance}) {{")
        inner = level < 2 and rng.random() < (0.35, 0.2)[level]
        if not inner:
            pragmas = ["", "PIPELINE", "PIPELINE II = 1", "PIPELINE II = 3", "PIPELINE off", "UNROLL factor = 2"]
            if bound != "n":
                pragmas.append("UNROLL")
            pragma = rng.choice(pragmas)
            if pragma:
                self.pragma(pragma)
        self.scope.append(Variable(name, 32, True, writable=False))
        self.body(depth + 1, level + 1, rng.randint(2, 5), loops=inner)
        if inner:
            self.loop(depth + 1, level + 1)
            if rng.random() < 0.5:
                self.body(depth + 1, level + 1, rng.randint(1, 2), loops=False)
        elif rng.random() < 0.15:
            self.leave(depth + 1)
            self.body(depth + 1, level + 1, 1, loops=False)
        del self.scope[known:]
        self.put(depth, last)

    def short_loop(self, depth: int) -> None:
        """A loop without braces around its statement."""
        known, name = len(self.scope), self.fresh("i")
        self.scope.append(Variable(name, 32, True, writable=False))
        target = next((each for each in self.scalars(writable=True)), None)
        if target is not None:
            self.put(depth, f"for (int {name} = 0; {name} < {self.rng.choice(('n', '5'))}; ++{name})")
            self.pragma(self.rng.choice(("PIPELINE", "UNROLL factor = 2", "LOOP_TRIPCOUNT min = 0 max = 12")))
            self.put(depth + 1, f"{target.name} += {target.type}({self.expression(2)});")
        del self.scope[known:]

    def twice(self, depth: int) -> None:
        """A loop that reads an array twice in an iteration, or stores to it twice."""
        if not any(each.length for each in self.scope):
            self.array(depth)
        known, name = len(self.scope), self.fresh("i")
        array = self.rng.choice([each for each in self.scope if each.length])
        self.put(depth, f"for (int {name} = 0; {name} < n; ++{name}) {{")
        self.pragma("PIPELINE II = 1")
        self.scope.append(Variable(name, 32, True, writable=False))
        first, second = self.element(array, 1), self.element(array, 1)
        if self.rng.random() < 0.5:
            self.put(depth + 1, f"{self.rng.choice(self.outputs)}.write(ap_uint<32>({first}) ^ ap_uint<32>({second}));")
        else:
            self.put(depth + 1, f"{first} = {array.type}({self.expression(1)});")
            self.put(depth + 1, f"{second} = {array.type}({self.expression(1)});")
        del self.scope[known:]
        self.put(depth, "}")

    def body(self, depth: int, level: int, statements: int, *, loops: bool) -> None:
        for _ in range(statements):
            kind = self.rng.randrange(15)
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
            elif kind == 12:
                self.assign_bits(depth)
            elif kind == 13 and self.records:
                self.copy(depth)
            elif loops and self.rng.random() < 0.2:
                self.short_loop(depth)
            elif loops:
                self.loop(depth, level)
