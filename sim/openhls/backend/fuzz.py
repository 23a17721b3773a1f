# SPDX-License-Identifier: Apache-2.0
"""Random C++ inside the subset: nested loops, arrays, branches, several streams, dataflow.

The text of a program follows from its seed alone. Values are ap_int and ap_uint, indices and shifts are cut to their
range and arrays are filled before use, so that every program means the same to g++ and to hardware.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

HEAD = "#include <ap_int.h>\n#include <hls_stream.h>\n"


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
    """Writes one function. Its streams are `inputs` and `outputs`, of 32-bit words."""

    rng: random.Random
    inputs: list[str]
    outputs: list[str]
    lines: list[str] = field(default_factory=list)
    scope: list[Variable] = field(default_factory=list)
    count: int = 0

    def put(self, depth: int, line: str) -> None:
        self.lines.append("  " * depth + line)

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
            return f"ap_uint<{bits}>({self.rng.choice(counters)})"
        return f"ap_uint<{bits}>({self.expression(depth - 1)})"

    def cast(self, text: str) -> str:
        width = self.rng.choice((1, 3, 8, 13, 20, 32, 33, 47))
        return f"ap_{self.rng.choice(('', 'u'))}int<{width}>({text})"

    def expression(self, depth: int) -> str:
        """An ap_int or ap_uint of at most 47 bits."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            names = [v.name for v in self.scalars()]
            if names and rng.random() < 0.8:
                return self.cast(rng.choice(names))
            return f"ap_int<20>({rng.randint(-(1 << 19), (1 << 19) - 1)})"
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        kind = rng.randrange(10)
        if kind < 5:
            return self.cast(f"{a} {rng.choice('+-*&|^+-')} {b}")
        if kind == 5:
            return self.cast(f"{a} {rng.choice(('<<', '>>'))} ap_uint<3>({b})")
        if kind == 6:
            return f"ap_uint<1>({a} {rng.choice(('<', '<=', '==', '!=', '>', '>='))} {b})"
        if kind == 7:
            return f"({self.condition(depth - 1)} ? ap_int<33>({a}) : ap_int<33>({b}))"
        if kind == 8 and self.arrays():
            array = rng.choice(self.arrays())
            return self.cast(f"{array.name}[{self.index(array, depth)}]")
        if kind == 9 and rng.random() < 0.2:
            return self.cast(f"ap_uint<12>({a}) {rng.choice('/%')} (ap_uint<9>({b}) | ap_uint<9>(1))")
        return self.cast(f"-{a}")

    def condition(self, depth: int) -> str:
        return f"({self.expression(depth)} {self.rng.choice(('<', '!=', '=='))} {self.expression(depth)})"

    # ---- statements ----

    def declare(self, depth: int, value: str) -> None:
        variable = Variable(self.fresh("v"), self.rng.choice((1, 5, 16, 32, 40)), self.rng.random() < 0.5)
        self.put(depth, f"{variable.type} {variable.name} = {value};")
        self.scope.append(variable)

    def assign(self, depth: int) -> None:
        targets = self.scalars(writable=True)
        if targets:
            variable = self.rng.choice(targets)
            self.put(depth, f"{variable.name} = {variable.type}({self.expression(2)});")

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

    def loop(self, depth: int, level: int) -> None:
        """A counted loop; constant bounds may be unrolled, runtime ones may have no iteration."""
        known, name = len(self.scope), self.fresh("i")
        bound = self.rng.choice(("n", "n", str(self.rng.randint(1, 6))))
        label = self.fresh("loop")
        self.lines.append(f"{label}:")
        self.put(depth, f"for (int {name} = 0; {name} < {bound}; ++{name}) {{")
        inner = level < 1 and self.rng.random() < 0.35
        if not inner:
            pragmas = ["", "PIPELINE", "PIPELINE II = 1", "PIPELINE II = 3", "PIPELINE off"]
            if bound != "n":
                pragmas.append("UNROLL")
            pragma = self.rng.choice(pragmas)
            if pragma:
                self.lines.append(f"#pragma HLS {pragma}")
        self.scope.append(Variable(name, 32, True, writable=False))
        self.body(depth + 1, level + 1, self.rng.randint(2, 5), loops=inner)
        if inner:
            self.loop(depth + 1, level + 1)
        del self.scope[known:]
        self.put(depth, "}")

    def body(self, depth: int, level: int, statements: int, *, loops: bool) -> None:
        for _ in range(statements):
            kind = self.rng.randrange(12)
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
            elif loops:
                self.loop(depth, level)

    def array(self, depth: int) -> None:
        length = self.rng.choice((4, 8, 16, 32))
        array = Variable(self.fresh("a"), self.rng.choice((3, 16, 32, 45)), self.rng.random() < 0.5, length)
        self.put(depth, f"{array.type} {array.name}[{length}];")
        partition = self.rng.choice(("", "", "complete", "cyclic factor = 2", "block factor = 4"))
        if partition:
            self.lines.append(f"#pragma HLS ARRAY_PARTITION variable = {array.name} {partition}")
        self.put(depth, f"for (int i = 0; i < {length}; ++i) {array.name}[i] = {array.type}(i * 37 + 5);")
        self.scope.append(array)


def arguments(inputs: list[str], outputs: list[str], scalar: str) -> str:
    streams = [f"hls::stream<ap_uint<32> >& {name}" for name in (*inputs, *outputs)]
    return ", ".join([*streams, "int n", f"{scalar} k"])


def plain_program(rng: random.Random) -> str:
    """One function with loops one after the other."""
    function = Function(rng, ["in0", "in1"], ["out0", "out1"])
    function.scope.append(K)
    function.put(0, f"ap_int<40> fuzzed({arguments(function.inputs, function.outputs, K.type)}) {{")
    for _ in range(rng.randint(0, 2)):
        function.array(1)
    for _ in range(rng.randint(1, 3)):
        function.declare(1, function.expression(2))
    for _ in range(rng.randint(1, 3)):
        function.body(1, 0, rng.randint(0, 2), loops=False)
        function.loop(1, 0)
    function.put(1, f"return ap_int<40>({function.expression(2)});")
    return "\n".join([HEAD, *function.lines, "}", ""])


def stage(rng: random.Random, name: str, source: str, target: str) -> list[str]:
    """A function that writes a word for each word it reads."""
    function = Function(rng, [], [])
    function.scope.append(K)
    function.put(0, f"static void {name}({arguments([source], [target], 'int')}) {{")
    if rng.random() < 0.5:
        function.array(1)
    function.declare(1, function.expression(1))
    function.put(1, "for (int i = 0; i < n; ++i) {")
    function.lines.append(f"#pragma HLS PIPELINE II = {rng.choice((1, 1, 2, 4))}")
    function.declare(2, f"{source}.read()")
    function.body(2, 1, rng.randint(1, 5), loops=False)
    function.put(2, f"{target}.write(ap_uint<32>({function.expression(3)}));")
    return [*function.lines, "  }", "}"]


def dataflow_program(rng: random.Random) -> str:
    """A chain of two to four stages."""
    count = rng.randint(2, 4)
    names = ["in0", *(f"link{i}" for i in range(count - 1)), "out0"]
    lines = [HEAD]
    for number in range(count):
        lines += stage(rng, f"stage{number}", names[number], names[number + 1])
    lines += [f"void fuzzed({arguments(['in0'], ['out0'], 'int')}) {{", "#pragma HLS DATAFLOW"]
    for name in names[1:-1]:
        lines.append(f'  hls::stream<ap_uint<32>, {rng.choice((2, 3, 16))}> {name}("{name}");')
    lines += [f"  stage{i}({names[i]}, {names[i + 1]}, n, k);" for i in range(count)]
    return "\n".join([*lines, "}", ""])


def random_program(seed: int) -> str:
    """C++ whose top is `fuzzed`."""
    rng = random.Random(seed)
    return dataflow_program(rng) if rng.random() < 0.25 else plain_program(rng)
