# SPDX-License-Identifier: Apache-2.0
"""Random programs about streams: queues within a function, stages with streams of their own, streams that outlive the
region or the call that uses them. Their numbers are plain integers, so that many of them compile in little time.

No program reads an empty stream, and none writes more words than a stream holds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

MOST = 12  # words that a loop of `n` writes (generate.CHOICES)
TYPES = ("int", "int", "unsigned", "short", "ap_uint<32>", "ap_int<20>")


@dataclass
class Text:
    """Lines of a function. `numbers` are variables that may be used; `loops` says how deep the place is in loops."""

    rng: random.Random
    top: str
    lines: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=lambda: ["n", "k"])
    count: int = 0
    depth: int = 1

    def put(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def value(self, *more: str) -> str:
        rng = self.rng
        names = [*more, *more, *self.numbers]
        a, b = rng.choice(names), rng.choice([*names, str(rng.randint(1, 99))])
        return f"(int)((unsigned)({a}) {rng.choice('+-*^|&')} (unsigned)({b}))"

    def mixed(self, word: str) -> str:
        """A value that is made of `word`, which is read once."""
        return f"(int)((unsigned){word} {self.rng.choice('+-*^')} (unsigned)({self.value()}))"

    def condition(self, *more: str) -> str:
        rng = self.rng
        return f"(({self.value(*more)}) {rng.choice(('& 1', '& 2', '< 0', '> 5', '% 3 == 0'))})"

    def open(self, line: str, pragma: bool = False) -> None:
        self.put(f"{line} {{")
        self.depth += 1
        if pragma and (
            text := self.rng.choice(("", "PIPELINE II = 1", "PIPELINE", "PIPELINE off", "UNROLL factor = 2"))
        ):
            self.lines.append(f"#pragma HLS {text}")

    def close(self, line: str = "}") -> None:
        self.depth -= 1
        self.put(line)

    def loop(self, trips: str, pragma: bool = True) -> str:
        name = self.fresh("i")
        self.open(f"for (int {name} = 0; {name} < {trips}; {name}++)", pragma)
        self.numbers.append(name)
        return name

    def end_loop(self) -> None:
        self.close()
        self.numbers.pop()


# ---- queues of one function ----


def declare(text: Text, most: int, bounded: bool) -> str:
    """A stream for at most `most` words. `bounded`: constants alone say how many there are."""
    rng, name, of = text.rng, text.fresh("q"), text.rng.choice(TYPES)
    wide = rng.choice((0, 0, 1, 3, 20))
    form = rng.choice(("plain", "depth", "pragma", "named")) if bounded else rng.choice(("depth", "pragma"))
    depth = f", {most + wide}" if form == "depth" else ""
    text.put(f"hls::stream<{of}{depth}> {name}{f'({chr(34)}{name}{chr(34)})' if form == 'named' else ''};")
    if form == "pragma":
        text.lines.append(f"#pragma HLS STREAM variable = {name} depth = {most + wide}")
    return name


def take(text: Text) -> str:
    return text.rng.choice(("in0.read()", "in0.read()", text.value()))


def give(text: Text, value: str) -> None:
    text.put(f"out0.write({value});")


def in_turn(text: Text) -> None:
    """All words are written, then all are read; each way may go through a function."""
    rng = text.rng
    count = rng.choice((str(rng.randint(1, 9)), str(rng.randint(1, 40)), "n"))
    name = declare(text, MOST if count == "n" else int(count), bounded=count != "n")
    if rng.random() < 0.4:
        text.put(f"{text.top}_fill(in0, {name}, {count});")
    else:
        text.loop(count)
        text.put(rng.choice((f"{name}.write({take(text)});", f"{name} << {take(text)};")))
        text.end_loop()
    if rng.random() < 0.3:
        text.put(f"{text.top}_drain({name}, out0, {count}, k);")
        return
    if rng.random() < 0.3:
        text.open(f"while (!{name}.empty())")
        give(text, text.mixed(f"{name}.read()"))
        text.close()
        return
    text.loop(count)
    give(text, text.mixed(f"{name}.read()"))
    text.end_loop()


def in_an_iteration(text: Text) -> None:
    """Some words are written and read in each iteration; the stream may belong to the iteration."""
    rng, words = text.rng, text.rng.randint(1, 4)
    inside = rng.random() < 0.4
    name = "" if inside else declare(text, words, bounded=True)
    text.loop(rng.choice(("n", "5", "9")))
    if inside:
        name = declare(text, words, bounded=True)
    kept = rng.random() < 0.2 and inside  # words that are left go with the stream
    for number in range(words):
        text.put(f"{name}.write({take(text) if number == 0 else text.value()});")
    for _ in range(words - kept):
        value = text.fresh("v")
        text.put(f"int {value} = {name}.read();")
        give(text, text.value(value, value))
    text.end_loop()


def delay(text: Text) -> None:
    """A line of some words: each one leaves so many iterations after it came."""
    by = text.rng.randint(1, 5)
    name = declare(text, by + 1, bounded=False)
    i = text.loop(text.rng.choice(("n", "11")))
    text.put(f"{name}.write({take(text)});")
    text.put(f"if ({i} >= {by}) out0.write({text.mixed(f'{name}.read()')});")
    text.end_loop()
    text.open(f"while (!{name}.empty())", pragma=False)
    give(text, f"{name}.read()")
    text.close()


def conditional(text: Text) -> None:
    """Words of some iterations only."""
    name = declare(text, MOST, bounded=False)
    text.loop("n")
    value = text.fresh("v")
    text.put(f"int {value} = {take(text)};")
    text.put(f"if ({text.condition(value)}) {name}.write({value});")
    if text.rng.random() < 0.4:
        text.put(f"if (!{name}.empty() && {text.condition(value)}) out0.write({name}.read());")
    text.end_loop()
    text.open(f"while (!{name}.empty())", pragma=False)
    give(text, text.mixed(f"{name}.read()"))
    text.close()


def chosen(text: Text) -> None:
    """An array of streams: words go where an index says, and leave in the order of the streams."""
    rng, name, length = text.rng, text.fresh("q"), text.rng.choice((2, 3, 4))
    text.put(f"hls::stream<{rng.choice(TYPES)}, {MOST}> {name}[{length}];")
    text.loop("n", pragma=False)
    value = text.fresh("v")
    text.put(f"int {value} = {take(text)};")
    text.put(f"{name}[(unsigned){value} % {length}].write({value});")
    text.end_loop()
    for at in range(length):
        text.open(f"while (!{name}[{at}].empty())")
        give(text, f"{name}[{at}].read()")
        text.close()


def nested(text: Text) -> None:
    """A queue around loops in loops, read in another order of loops."""
    rows, columns = text.rng.randint(1, 4), text.rng.randint(1, 5)
    name = declare(text, rows * columns, bounded=True)
    for outer, inner, reads in ((rows, columns, False), (columns, rows, True)):
        text.loop(str(outer), pragma=False)
        text.loop(str(inner))
        if reads:
            give(text, text.mixed(f"{name}.read()"))
        else:
            text.put(f"{name}.write({take(text)});")
        text.end_loop()
        text.end_loop()


def in_a_branch(text: Text) -> None:
    text.open(f"if ({text.condition()})")
    text.rng.choice((in_turn, in_an_iteration, delay))(text)
    text.close()


def static(text: Text) -> None:
    """A static stream: each call reads what it writes."""
    rng, name, count = text.rng, text.fresh("s"), text.rng.randint(1, 6)
    text.put(f"static hls::stream<{rng.choice(TYPES)}> {name};")
    for reads in (False, True):
        text.loop(str(count))
        if reads:
            give(text, text.mixed(f"{name}.read()"))
        else:
            text.put(f"{name}.write({take(text)});")
        text.end_loop()


PLAIN = (in_turn, in_turn, in_an_iteration, in_an_iteration, delay, conditional, chosen, nested)
ENDS = "hls::stream<int>& in0, hls::stream<int>& out0"


def helpers(text: Text, name: str) -> list[str]:
    """Functions that write to a stream of their caller, and read from it."""
    of, sign = "template <typename T>\nstatic ", text.rng.choice("+-^")
    return [
        f"{of}void {name}_fill(hls::stream<int>& from, T& to, int count) {{",
        "  for (int i = 0; i < count; i++) to.write(from.read());",
        "}",
        f"{of}void {name}_drain(T& from, hls::stream<int>& to, int count, int k) {{",
        f"  for (int i = 0; i < count; i++) to.write((int)((unsigned)from.read() {sign} (unsigned)k));",
        "}",
    ]


def queue_program(rng: random.Random, top: str) -> list[str]:
    """A top with queues of its own."""
    text = Text(rng, top)
    for _ in range(rng.randint(1, 3)):
        rng.choice((*PLAIN, in_a_branch, static))(text)
    return [*helpers(text, top), f"void {top}({ENDS}, int n, int k) {{", *text.lines, "}"]


# ---- stages ----


def stage_program(rng: random.Random, top: str) -> list[str]:
    """A dataflow region of two or three stages, some with queues of their own; a stage may have a stream more, through
    functions or a region within it."""
    count = rng.randint(2, 3)
    lines: list[str] = []
    for number in range(count):
        name = f"{top}_stage{number}"
        if rng.random() < 0.3:
            lines += layer(rng, name)
            continue
        text = Text(rng, name)
        text.loop("n", pragma=False)
        value = text.fresh("v")
        text.put(f"int {value} = in0.read();")
        text.numbers.append(value)
        words = rng.randint(1, 3)
        if rng.random() < 0.7:
            queue = declare(text, words, bounded=True)
            for _ in range(words):
                text.put(f"{queue}.write({text.value(value)});")
            text.put(f"int sum = {queue}.read();")
            for _ in range(words - 1):
                text.put(f"sum = 2 * (sum & 0xffff) ^ {queue}.read();")
            text.numbers.append("sum")
        give(text, text.value(value))
        text.close()
        inline = ["#pragma HLS INLINE"] if rng.random() < 0.3 else []
        lines += [f"static void {name}({ENDS}, int n, int k) {{", *inline, *text.lines, "}"]
    return [*lines, *region(rng, top, count)]


def layer(rng: random.Random, name: str) -> list[str]:
    """A stage of two functions with a stream between them."""
    region = rng.random() < 0.5
    depth = rng.choice((2, 5)) if region else MOST
    return [
        f"static void {name}_a(hls::stream<int>& from, hls::stream<int, {depth}>& to, int n) {{",
        "  for (int i = 0; i < n; i++) to.write((int)(3u * from.read()));",
        "}",
        f"static void {name}_b(hls::stream<int, {depth}>& from, hls::stream<int>& to, int n, int k) {{",
        "  for (int i = 0; i < n; i++) to.write((int)((unsigned)from.read() - k));",
        "}",
        f"static void {name}({ENDS}, int n, int k) {{",
        f"#pragma HLS {'DATAFLOW' if region else rng.choice(('INLINE', 'INLINE off'))}",
        f"  hls::stream<int, {depth}> between;",
        f"  {name}_a(in0, between, n);",
        f"  {name}_b(between, out0, n, k);",
        "}",
    ]


def region(rng: random.Random, top: str, count: int) -> list[str]:
    """The region: once, in a loop, or with a stream that keeps a word from one run to the next."""
    outlives = rng.choice(("", "", "function", "static"))
    links = [f"link{i}" for i in range(count - 1)]
    depths = [rng.choice((2, 3, 64)) for _ in links]
    declared = [f"hls::stream<int, {depth}> {name};" for name, depth in zip(links, depths, strict=True)]
    ends = ["in0", *links, "out0"]
    calls = [f"  {top}_stage{i}({ends[i]}, {ends[i + 1]}, n, k);" for i in range(count)]
    if not outlives:
        repeated = rng.random() < 0.4
        head = f"{'static ' if repeated else ''}void {top}{'_region' if repeated else ''}({ENDS}, int n, int k) {{"
        lines = [head, "#pragma HLS DATAFLOW", *(f"  {each}" for each in declared), *calls, "}"]
        if repeated:
            runs = rng.choice(("2", "3", "(n & 1) + 1"))
            loop = f"  for (int run = 0; run < {runs}; ++run) {top}_region(in0, out0, n, k);"
            lines += [f"void {top}({ENDS}, int n, int k) {{", loop, "}"]
        return lines
    # The last stage takes a word less than comes to it.
    ahead = f"  {top}_stage0(in0, last, n, k);"
    behind = [
        f"static void {top}_less(hls::stream<int, 64>& from, hls::stream<int>& to, int n) {{",
        "  for (int i = 0; i < n - 1; i++) to.write(from.read());",
        "}",
    ]
    if outlives == "static":
        body = [
            "#pragma HLS DATAFLOW",
            "  static hls::stream<int, 64> last;",
            ahead,
            f"  {top}_less(last, out0, n);",
            "}",
        ]
        return [*behind, f"void {top}({ENDS}, int n, int k) {{", *body]
    runs = rng.choice(("2", "3", "(n & 3)"))
    return [
        *behind,
        f"static void {top}_region({ENDS}, hls::stream<int, 64>& last, int n, int k) {{",
        "#pragma HLS DATAFLOW",
        ahead,
        f"  {top}_less(last, out0, n);",
        "}",
        f"void {top}({ENDS}, int n, int k) {{",
        "  hls::stream<int, 64> last;",
        f"  for (int run = 0; run < {runs}; ++run) {top}_region(in0, out0, last, n, k);",
        "}",
    ]
