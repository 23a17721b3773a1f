# SPDX-License-Identifier: Apache-2.0
"""One statement outside the subset in a random program inside it: refused by the line of that statement."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest

from openhls.errors import OpenHlsError
from openhls.fuzz.generate import random_program, top_name
from openhls.pipeline import compile_program

PROGRAMS = [1, pytest.param(4, marks=pytest.mark.slow)]  # for each statement
# `{out}` is a stream that the function writes, so that clang cannot leave the statement out.
OUTSIDE = {
    "float": "{out}.write(ap_uint<32>(int(float(n) * 1.5f)));",
    "double": "{out}.write(ap_uint<32>(int(double(n) / 3.0)));",
    "assembler": 'asm volatile("nop");',
    "heap": "int* outside = new int[4]; outside[n & 3] = n; {out}.write(outside[(n + 1) & 3]);",
    "variable of a thread": "static thread_local int outside = 3; outside += n; {out}.write(outside);",
    "function from elsewhere": "extern int outside(int); {out}.write(outside(n));",
    "output": '__builtin_printf("%d", n);',
    "array of a length at run time": "int outside[n + 1]; outside[n] = n; {out}.write(outside[n / 2]);",
    "address as a number": "int outside[2] = {{n, 1}}; {out}.write((unsigned long)(&outside[0]));",
    "volatile": "volatile int outside = n; {out}.write(outside);",
    "jump into a loop": (
        "{{ int at = n; if (at & 1) goto inside; while (at > 0) {{ at -= 3; inside: at += 1; {out}.write(at); }} }}"
    ),
    "unknown pragma": "#pragma HLS OCCURRENCE cycle = 2",  # refused because these are compiled strictly
    "interval of no cycle": (
        "for (int i = 0; i < n; ++i) {{\n#pragma HLS PIPELINE II = 0\n    {out}.write(ap_uint<32>(i));\n  }}"
    ),
}


def writers(lines: list[str]) -> list[tuple[int, re.Match[str]]]:
    """The first line of each function that writes a stream, and its `.write(`."""
    heads = [number for number, line in enumerate(lines) if re.match(r"\w.*\) \{$", line)]
    bodies = list(zip(heads, [*heads[1:], len(lines)], strict=True))
    found = [(first, re.search(r"(\w+)\.write\(", "\n".join(lines[first:last]))) for first, last in bodies]
    return [(first, stream) for first, stream in found if stream is not None]


def spoiled(seed: int, statement: str) -> tuple[str, int]:
    """The program of `seed` with the statement first in one of its functions, and its line, counted from 1."""
    lines = random_program(seed).splitlines()
    first, stream = random.Random(seed).choice(writers(lines))
    text = statement.format(out=stream.group(1))
    pragma = next((n for n, line in enumerate(text.splitlines()) if line.startswith("#")), 0)
    return "\n".join([*lines[: first + 1], text, *lines[first + 1 :], ""]), first + 2 + pragma


@pytest.mark.parametrize("programs", PROGRAMS)
@pytest.mark.parametrize("kind", OUTSIDE)
def test_a_statement_outside_the_subset_is_refused_by_its_line(kind: str, programs: int, tmp_path: Path) -> None:
    seeds = itertools.count(100 * list(OUTSIDE).index(kind))
    some = (seed for seed in seeds if writers(random_program(seed).splitlines()))
    for seed in itertools.islice(some, programs):
        text, line = spoiled(seed, OUTSIDE[kind])
        source = tmp_path / f"{top_name(seed)}.cpp"
        source.write_text(text)
        with pytest.raises(OpenHlsError) as caught:
            compile_program(source, top_name(seed), strict=True)
        assert re.search(rf"{re.escape(str(source))}:{line}\b", str(caught.value)), (seed, str(caught.value))
