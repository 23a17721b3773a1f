# SPDX-License-Identifier: Apache-2.0
"""Random testbenches of one top: the ways in which people feed streams and collect from them. The status of `main` is
the number of words that are not as they should be."""

from __future__ import annotations

import random

DOUBLED = """#include <hls_stream.h>
void doubled(hls::stream<int>& in, hls::stream<int>& out, int n) {
  for (int i = 0; i < n; i++) out.write(2 * in.read());
}
"""

FEEDS = (
    "for (int i = 0; i < N; i++) in.write(7 * i + C);",
    "for (int i = 0; i < N; i++) in << 7 * i + C;",
    "for (int i = 0; i < N; i++) while (!in.write_nb(7 * i + C)) {\n    }",
    "for (int i = 0; i < N; i++) errors += in.full(), in.write(7 * i + C);",
)
# Each sees the words 2 * (7 * i + C) in turn, and counts what it has seen in `seen`.
COLLECTS = (
    "for (; seen < N; seen++) errors += out.read() != 2 * (7 * seen + C);",
    "for (; seen < N; seen++) {\n      out >> word;\n      errors += word != 2 * (7 * seen + C);\n    }",
    "for (; seen < N; seen++) errors += !out.read_nb(word) || word != 2 * (7 * seen + C);",
    "while (!out.empty()) errors += out.read() != 2 * (7 * seen++ + C);",
    "while (out.read_nb(word)) errors += word != 2 * (7 * seen++ + C);",
    "for (const int there = out.size(); seen < there; seen++) errors += out.read() != 2 * (7 * seen + C);",
)
AFTER = ("errors += !out.empty();", "errors += out.read_nb(word);", "errors += out.size() != 0;", "")


def random_bench(seed: int, calls: int) -> str:
    """A testbench of the top `doubled` (DOUBLED) with so many calls."""
    rng = random.Random(seed)
    lines = ["#include <hls_stream.h>", "void doubled(hls::stream<int>& in, hls::stream<int>& out, int n);"]
    lines += ["static hls::stream<int> all_in, all_out;", "int main() {", "  int errors = 0, word = 0;"]
    for call in range(calls):
        count, more = rng.randint(0, 9), rng.choice((0, 0, 2))
        own = rng.random() < 0.6
        lines += ["  {", "    hls::stream<int> in, out;" if own else "    auto &in = all_in, &out = all_out;"]
        feed = rng.choice(FEEDS).replace("N", str(count + more if own else count)).replace("C", str(call))
        collect = rng.choice(COLLECTS).replace("N", str(count)).replace("C", str(call))
        lines += ["    int seen = 0;", f"    {feed}", f"    doubled(in, out, {count});", f"    {collect}"]
        lines += [f"    {rng.choice(AFTER)}", f"    errors += seen != {count};"]
        if own:
            lines.append(f"    errors += in.size() != {more};")
        lines.append("  }")
    return "\n".join([*lines, "  return errors;", "}", ""])
