# SPDX-License-Identifier: Apache-2.0
"""Random C++ inside the subset: nested loops, arrays, structs, branches, several streams, memory, dataflow.

The text of a program follows from its seed alone. Values are ap_int and ap_uint, indices and shifts are cut to their
range and arrays are filled before use, so that every program means the same to g++ and to hardware. All its functions
carry the seed in their names, so that many programs fit into one translation unit and one simulation.
"""

from __future__ import annotations

import random

from openhls.fuzz.function import Function, K, Variable

HEAD = "#include <ap_int.h>\n#include <hls_stream.h>\n"
# What the arguments of every program may be; see `openhls cosim --set`.
CHOICES = ("n=0:12", "k=-65536,-3:3,65535")
ELEMENTS = 128  # behind each pointer


def arguments(inputs: list[str], outputs: list[str], scalar: str, memory: tuple[str, ...] = ()) -> str:
    streams = [f"hls::stream<ap_uint<32> >& {name}" for name in (*inputs, *outputs)]
    return ", ".join([*streams, *memory, "int n", f"{scalar} k"])


def plain_program(rng: random.Random, top: str) -> list[str]:
    """One function with loops one after the other."""
    function = Function(rng, ["in0", "in1"], ["out0", "out1"])
    if rng.random() < 0.4:
        wide, narrow = rng.choice(((32, 32), (64, 16), (128, 8), (20, 12), (6, 50)))
        sign = rng.choice(("", "u"))
        function.pointers = {"mem_in": f"const ap_{sign}int<{wide}>", "mem_out": f"ap_{sign}int<{narrow}>"}
    function.scope.append(K)
    memory = [f"{kind}* {name}" for name, kind in function.pointers.items()]
    if rng.random() < 0.3:
        table = Variable("table", rng.choice((8, 16, 32)), rng.random() < 0.5, rng.choice((4, 16)))
        memory.append(f"{table.type} {table.name}[{table.length}]")
        function.scope.append(table)
    function.put(0, f"ap_int<40> {top}({arguments(function.inputs, function.outputs, K.type, tuple(memory))}) {{")
    if memory[len(function.pointers) :] and (partition := rng.choice(("", "", "complete", "cyclic factor = 2"))):
        function.pragma(f"ARRAY_PARTITION variable = table {partition}")
    for name in function.pointers:
        function.pragma(f"INTERFACE m_axi port = {name} bundle = {rng.choice(('gmem', name))}")
    for _ in range(rng.randint(0, 2)):
        function.array(1)
    if rng.random() < 0.3:
        function.keep(1)
    for _ in range(rng.randint(1, 3)):
        function.declare(1, function.expression(2))
    for _ in range(rng.randint(1, 3)):
        function.body(1, 0, rng.randint(0, 2), loops=False)
        if function.pointers and rng.random() < 0.7:
            function.memory(1)
        else:
            function.loop(1, 0)
    function.put(1, f"return ap_int<40>({function.expression(2)});")
    return [*function.lines, "}"]


def stage(rng: random.Random, name: str, source: str, target: str) -> list[str]:
    """A function that writes a word for each word it reads."""
    function = Function(rng, [], [])
    function.scope.append(K)
    function.put(0, f"static void {name}({arguments([source], [target], 'int')}) {{")
    if rng.random() < 0.5:
        function.array(1)
    if rng.random() < 0.3:
        function.keep(1)
    function.declare(1, function.expression(1))
    function.put(1, "for (int i = 0; i < n; ++i) {")
    function.pragma(f"PIPELINE II = {rng.choice((1, 1, 2, 4))}")
    function.declare(2, f"{source}.read()")
    function.body(2, 1, rng.randint(1, 5), loops=False)
    function.put(2, f"{target}.write(ap_uint<32>({function.expression(3)}));")
    return [*function.lines, "  }", "}"]


def dataflow_program(rng: random.Random, top: str) -> list[str]:
    """A chain of two to four stages."""
    count = rng.randint(2, 4)
    names = ["in0", *(f"link{i}" for i in range(count - 1)), "out0"]
    lines = []
    for number in range(count):
        lines += stage(rng, f"{top}_stage{number}", names[number], names[number + 1])
    lines += [f"void {top}({arguments(['in0'], ['out0'], 'int')}) {{", "#pragma HLS DATAFLOW"]
    for name in names[1:-1]:
        lines.append(f'  hls::stream<ap_uint<32>, {rng.choice((2, 3, 16))}> {name}("{name}");')
    lines += [f"  {top}_stage{i}({names[i]}, {names[i + 1]}, n, k);" for i in range(count)]
    return [*lines, "}"]


def top_name(seed: int) -> str:
    return f"fuzzed_{seed}"


def random_program(seed: int) -> str:
    """C++ whose top is `top_name(seed)`."""
    rng = random.Random(seed)
    write = dataflow_program if rng.random() < 0.25 else plain_program
    return "\n".join([HEAD, *write(rng, top_name(seed)), ""])
