# SPDX-License-Identifier: Apache-2.0
"""Random networks of tasks and channels: chains and trees between the streams of the top, which stages may feed."""

from __future__ import annotations

import random

HEAD = "#include <ap_int.h>\n#include <hls_np_channel.h>\n#include <hls_task.h>\n"
WORDS = "hls::stream<ap_uint<32> >&"


def task_program(seed: int, top: str) -> str:
    """A top with one input and one or two outputs; the text follows from the seed."""
    rng = random.Random(seed)
    net = _Net(rng, top)
    leaves = net.grow()
    arguments = [f"{WORDS} in0", *(f"{WORDS} out{number}" for number in range(len(leaves)))]
    for number, leaf in enumerate(leaves):
        net.task([leaf], [f"out{number}"])
    body = [f"  hls_thread_local hls::stream<ap_uint<32>, {depth}> {name};" for name, depth in net.streams.items()]
    rng.shuffle(net.tasks)  # the order of tasks has no meaning
    head = f"void {top}({', '.join(arguments)}) {{"
    return "\n".join([HEAD, *net.functions, head, *body, *net.channels, *net.tasks, "}", ""])


class _Net:
    def __init__(self, rng: random.Random, top: str) -> None:
        self._rng, self._top = rng, top
        self.functions: list[str] = []
        self.channels: list[str] = []
        self.tasks: list[str] = []
        self.streams: dict[str, int] = {}

    def grow(self) -> list[str]:
        """Tasks behind the input; returns the streams at the ends."""
        ends = ["in0"]
        for _ in range(self._rng.randrange(1, 4)):
            end = ends.pop(self._rng.randrange(len(ends)))
            if self._rng.random() < 0.3:
                ends.append(self.in_turn(end))
                continue
            count = 2 if not len(ends) and self._rng.random() < 0.4 else 1
            after = [self.stream() for _ in range(count)]
            self.task([end], after)
            ends += after
        return ends

    def stream(self) -> str:
        name = f"s{len(self.streams)}"
        self.streams[name] = self._rng.choice((1, 2, 3, 8))
        return name

    def in_turn(self, source: str) -> str:
        """Workers between a split and a merge, which keep the order."""
        ports = self._rng.choice((2, 3))
        number = len(self.channels)
        split, merge = f"split{number}", f"merge{number}"
        for kind, name in (("split", split), ("merge", merge)):
            self.channels.append(f"  hls_thread_local hls::{kind}::round_robin<ap_uint<32>, {ports}> {name};")
        self.task([source], [f"{split}.in"])
        for port in range(ports):
            self.task([f"{split}.out[{port}]"], [f"{merge}.in[{port}]"], plain=True)
        return f"{merge}.out"

    def task(self, sources: list[str], targets: list[str], plain: bool = False) -> None:
        """One more task, and its function. `plain`: a word for a word, whatever came before."""
        rng, number = self._rng, len(self.functions)
        name = f"{self._top}_{number}"
        inputs = [f"in{each}" for each in range(len(sources))]
        outputs = [f"out{each}" for each in range(len(targets))]
        arguments = ", ".join(f"{WORDS} {each}" for each in (*inputs, *outputs))
        state = not plain and rng.random() < 0.5
        lines = [f"void {name}({arguments}) {{"]
        if state:  # what a task keeps from word to word is a variable around a loop without end
            lines += ["  ap_uint<32> kept = 1;", "  while (true) {"]
        lines.append("  ap_uint<32> x = in0.read();")
        if not plain and rng.random() < 0.3:
            lines.append("  x ^= in0.read();")  # two words become one
        lines.append(f"  x = {rng.choice(('x + 3', 'x * 5', 'x ^ (x >> 3)', '~x', 'x - (x << 2)'))};")
        if state:
            lines.append(f"  kept = kept {rng.choice('+^')} x; x = kept;")
        if len(outputs) == 2:
            lines.append(f"  if (x[{rng.randrange(8)}]) out0.write(x); else out1.write(x + 1);")
        elif not plain and rng.random() < 0.3:
            lines.append("  for (int i = 0; i < 3; ++i) out0.write(x + i);")
        elif not plain and rng.random() < 0.3:
            lines.append("  if (x & 3) out0.write(x);")
        else:
            lines.append("  out0.write(x);")
        self.functions.append("\n".join([*lines, *(["  }"] if state else []), "}"]))
        given = ", ".join([*sources, *targets])
        self.tasks.append(f"  hls_thread_local hls::task t{number}({name}, {given});")
