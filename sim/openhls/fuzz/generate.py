# SPDX-License-Identifier: Apache-2.0
"""Random C++ inside the subset: nested loops, arrays, structs, branches, streams, side channels, memory, dataflow,
addresses.

The text of a program follows from its seed alone. Values are ap_int and ap_uint, indices and shifts are cut to their
range and arrays are filled before use, so that every program means the same to g++ and to hardware. All its functions
carry the seed in their names, so that many programs fit into one translation unit and one simulation.
"""

from __future__ import annotations

import random

from openhls.fuzz.addresses import address_program
from openhls.fuzz.expressions import Variable
from openhls.fuzz.function import Function
from openhls.fuzz.memory import Pointer, Transfers, pointers
from openhls.fuzz.queues import queue_program, stage_program

HEAD = "#include <ap_axi_sdata.h>\n#include <ap_fixed.h>\n#include <ap_int.h>\n#include <hls_stream.h>\n"
STREAM_HEAD = "#include <ap_int.h>\n#include <hls_stream.h>\n"
STREAMS = 1_000_000  # programs from this one on are about streams
ADDRESSES = 2_000_000  # and from this one on about addresses
# What the arguments of every program may be; see `openhls cosim --set`.
CHOICES = ("n=0:12", "k=-65536,-3:3,65535")
ELEMENTS = 128  # behind each pointer
MOST = 16  # elements of an array between two stages, more than `n`
K = Variable("k", 17, True, writable=False)  # an argument; an int where functions pass it on
# Streams by their declarations: some in arrays, some with names that are keywords of SystemVerilog.
INPUTS = (("in0", "in1"), ("wire", "reg"), ("in0", "lanes[0]", "lanes[1]", "lanes[n & 1]"))
OUTPUTS = (("out0", "out1"), ("out0", "logic"), ("out0", "slots[0]", "slots[1]", "slots[n & 1]"))
# Pragmas that are accepted, change nothing and say so.
WITHOUT_EFFECT = ("LATENCY min = 1 max = 9", "ALLOCATION operation instances = mul limit = 2", "LOOP_MERGE")


def streams(names: tuple[str, ...]) -> list[str]:
    """Their declarations; an array of them has two."""
    declared = dict.fromkeys(name.partition("[")[0] + ("[2]" if "[" in name else "") for name in names)
    return [
        f"hls::stream<ap_uint<32> >& {name}" if "[" not in name else f"hls::stream<ap_uint<32> > {name}"
        for name in declared
    ]


def plain_program(rng: random.Random, top: str) -> list[str]:
    """One function with loops one after the other."""
    inputs, outputs = rng.choice(INPUTS), rng.choice(OUTPUTS)
    function = Function(rng, top=top, inputs=list(inputs), outputs=list(outputs), scope=[K])
    known = pointers(rng, top, function.heads) if rng.random() < 0.4 else []
    arguments = [*streams(inputs), *streams(outputs), *(pointer.declared for pointer in known)]
    table = Variable("table", rng.choice((8, 16, 32)), rng.random() < 0.5, rng.choice((4, 16)))
    has_table, gives = rng.random() < 0.3, rng.random()
    if has_table:
        arguments.append(f"{table.type} {table.name}[{table.length}]")
        function.scope.append(table)
    if gives < 0.2:
        arguments.append("int* given")
    elif gives < 0.4:
        total = Variable("total", 20, True)
        arguments.append(f"{total.type}& {total.name}")
        function.scope.append(total)
    function.put(0, f"ap_int<40> {top}({', '.join([*arguments, 'int n', f'{K.type} k'])}) {{")
    if has_table and (partition := rng.choice(("", "", "complete", "cyclic factor = 2"))):
        function.pragma(f"ARRAY_PARTITION variable = table {partition}")
    for pointer in known:
        function.pragma(f"INTERFACE m_axi port = {pointer.name} bundle = {rng.choice(('gmem', pointer.name))}")
    if rng.random() < 0.15:
        function.pragma(rng.choice(WITHOUT_EFFECT))
    for _ in range(rng.randint(0, 2)):
        function.array(1)
    if rng.random() < 0.3:
        function.keep(1)
    for _ in range(rng.randint(1, 3)):
        function.declare(1, function.expression(2))
    statements(function, known)
    if rng.random() < 0.5:
        function.twice(1)
    if gives < 0.2:
        function.put(1, f"*given {rng.choice(('=', '+='))} ap_int<32>({function.expression(2)}).to_int();")
    for name in (*inputs, *outputs):  # every stream of an array has to be used
        if name.endswith(("[0]", "[1]")):
            function.put(1, f"{name}.write(7);" if name in outputs else f"out0.write({name}.read());")
    function.put(1, f"return ap_int<40>({function.expression(2)});")
    return [*function.heads, *function.lines, "}"]


def statements(function: Function, known: list[Pointer]) -> None:
    """Some statements, each followed by a loop, perhaps over memory."""
    for _ in range(function.rng.randint(1, 3)):
        function.body(1, 0, function.rng.randint(0, 2), loops=False)
        if known and function.rng.random() < 0.7:
            Transfers(function, known).loop(1)
        else:
            function.loop(1, 0)


def packet_program(rng: random.Random, top: str) -> list[str]:
    """One function that changes words with side channels."""
    data, user, identity, dest = rng.choice((8, 20, 32)), rng.choice((1, 5)), rng.choice((3, 8)), rng.choice((2, 9))
    sign = rng.choice(("", "u"))
    function = Function(rng, top=top, scope=[K])
    function.put(0, f"typedef ap_axi{sign or 's'}<{data}, {user}, {identity}, {dest}> {top}_word;")
    words = f"hls::stream<{top}_word>"
    function.put(0, f"void {top}({words}& in0, {words}& out0, int n, {K.type} k) {{")
    if rng.random() < 0.5:
        function.array(1)
    if rng.random() < 0.5:
        function.keep(1)
    function.declare(1, function.expression(1))
    function.put(1, "for (int i = 0; i < n; ++i) {")
    function.pragma(f"PIPELINE II = {rng.choice((1, 1, 2))}")
    function.put(2, f"{top}_word word = in0.read();")
    widths = {"user": user, "id": identity, "dest": dest, "last": 1, "keep": -(-data // 8), "strb": -(-data // 8)}
    function.scope.append(Variable("word.data", data, sign == ""))
    function.scope += [Variable(f"word.{name}", width, False) for name, width in widths.items()]
    function.body(2, 1, rng.randint(2, 6), loops=False)
    function.put(2, f"if {function.condition(1)} out0.write(word);" if rng.random() < 0.3 else "out0.write(word);")
    return [*function.heads, *function.lines, "  }", "}"]


# ---- dataflow ----


def argument(kind: str, name: str, writes: bool) -> str:
    """What a stage takes its words from, or gives them to: a stream, an array, or memory."""
    if kind == "stream":
        return f"hls::stream<ap_uint<32> >& {name}"
    return f"ap_uint<32> {name}[{MOST}]" if kind == "array" else f"{'' if writes else 'const '}ap_uint<32>* {name}"


def stage(rng: random.Random, name: str, source: tuple[str, str], target: tuple[str, str]) -> list[str]:
    """A function that gives a word for each word it takes."""
    function = Function(rng, top=name, scope=[K])
    ends = f"{argument(*source, writes=False)}, {argument(*target, writes=True)}"
    function.put(0, f"static void {name}({ends}, int n, int k) {{")
    if rng.random() < 0.5:
        function.array(1)
    if rng.random() < 0.3:
        function.keep(1)
    function.declare(1, function.expression(1))
    function.put(1, "for (int i = 0; i < n; ++i) {")
    function.pragma(f"PIPELINE II = {rng.choice((1, 1, 2, 4))}")
    function.declare(2, f"{source[1]}.read()" if source[0] == "stream" else f"{source[1]}[i]")
    function.body(2, 1, rng.randint(1, 5), loops=False)
    word = f"ap_uint<32>({function.expression(3)})"
    function.put(2, f"{target[1]}.write({word});" if target[0] == "stream" else f"{target[1]}[i] = {word};")
    return [*function.heads, *function.lines, "  }", "}"]


def dataflow_program(rng: random.Random, top: str) -> list[str]:
    """A chain of two to four stages, with streams and arrays between them; some run several times."""
    count = rng.randint(2, 4)
    links = [(rng.choice(("stream", "stream", "array")), f"link{i}") for i in range(count - 1)]
    first = (rng.choice(("stream", "stream", "memory")), "in0")
    last = (rng.choice(("stream", "stream", "memory")), "out0")
    chain = [first, *links, last]
    lines = []
    for number in range(count):
        lines += stage(rng, f"{top}_stage{number}", chain[number], chain[number + 1])
    arguments = f"{argument(*first, writes=False)}, {argument(*last, writes=True)}, int n, int k"
    repeated = rng.random() < 0.3
    interfaces = [
        f"#pragma HLS INTERFACE m_axi port = {name} bundle = {name}" for kind, name in (first, last) if kind == "memory"
    ]
    lines.append(f"{'static ' if repeated else ''}void {top}{'_region' if repeated else ''}({arguments}) {{")
    lines += [*([] if repeated else interfaces), "#pragma HLS DATAFLOW"]
    for kind, name in links:
        if kind == "stream":
            kept = rng.choice(("", "static "))
            lines.append(f'  {kept}hls::stream<ap_uint<32>, {rng.choice((2, 3, 16))}> {name}("{name}");')
        else:
            lines.append(f"  ap_uint<32> {name}[{MOST}];")
            if rng.random() < 0.3:
                lines.append(f"#pragma HLS ARRAY_PARTITION variable = {name} {rng.choice(('complete', 'cyclic'))}")
    lines += [f"  {top}_stage{i}({chain[i][1]}, {chain[i + 1][1]}, n, k);" for i in range(count)]
    if repeated:
        lines += ["}", f"void {top}({arguments}) {{", *interfaces]
        runs, value = rng.choice(("2", "(n & 1) + 1", "5", "5")), rng.choice(("k", "k + run"))
        lines.append(f"  for (int run = 0; run < {runs}; ++run) {top}_region(in0, out0, n, {value});")
    return [*lines, "}"]


def top_name(seed: int) -> str:
    return f"fuzzed_{seed}"


def stream_program(seed: int) -> str:
    """C++ about streams whose top is `top_name(seed)`."""
    rng = random.Random(seed)
    write = queue_program if rng.random() < 0.6 else stage_program
    return "\n".join([STREAM_HEAD, *write(rng, top_name(seed)), ""])


def random_program(seed: int) -> str:
    """C++ whose top is `top_name(seed)`."""
    if ADDRESSES > seed >= STREAMS:
        return stream_program(seed)
    rng = random.Random(seed)
    if seed >= ADDRESSES:
        return "\n".join([HEAD, *address_program(rng, top_name(seed)), ""])
    kind = rng.random()
    write = dataflow_program if kind < 0.2 else packet_program if kind < 0.3 else plain_program
    return "\n".join([HEAD, *write(rng, top_name(seed)), ""])
