# SPDX-License-Identifier: Apache-2.0
"""Structs in memory: which are stored as a whole, and which loops are unrolled so that they are."""

from pathlib import Path

import pytest

from openhls.frontend.short_loops import loops_that_wait
from openhls.ir import Program, loops_of
from openhls.pipeline import compile_program, write_design

HEAD = """struct Pixel { unsigned char red, green; short depth; };
struct Padded { char c; int i; };
struct Row { unsigned data[KB]; };
"""


def compiled(text: str, folder: Path, fields: int = 16) -> Program:
    source = folder / "program.cpp"
    source.write_text(HEAD.replace("KB", str(fields)) + text)
    return compile_program(source, "top", flow="vitis")


# The type of a pointer, statements for element i, and the bits that memory moves at once.
STORES = {
    "all fields": ("Pixel", "p[i].depth = i; p[i].red = 1; p[i].green = 2;", 32),
    "all fields of two elements": (
        "Pixel",
        "p[i].depth = i; p[i].red = 1; p[i].green = 2; p[i + 50].red = i; p[i + 50].green = 3; p[i + 50].depth = n;",
        32,
    ),
    "a field": ("Pixel", "p[i].depth = i; p[i].red = 1;", 8),
    "two elements in turns": (
        "Pixel",
        "p[i].depth = i; p[n].red = 1; p[i].red = 2; p[n].depth = 3; p[i].green = 4; p[n].green = i;",
        8,
    ),
    "a field under a condition": ("Pixel", "p[i].depth = i; p[i].red = 1; if (q[i]) p[i].green = 2;", 8),
    "a load in between": ("Pixel", "p[i].red = i; p[i].green = p[i + n].green; p[i].depth = 5;", 8),
    "padding": ("Padded", "p[i].c = i; p[i].i = n;", 8),
}


@pytest.mark.parametrize("name", STORES)
def test_a_struct_is_stored_as_a_whole_only_if_all_of_it_is_stored(name: str, tmp_path: Path) -> None:
    of, statements, width = STORES[name]
    program = compiled(
        f"void top({of}* p, const int* q, int n) {{\n  for (int i = 0; i < n; ++i) {{ {statements} }}\n}}\n", tmp_path
    )
    (memory,) = (port for port in program.memories if port.name == "p")
    assert memory.width == width
    assert bool(program.warnings) == (width == 8)  # in pieces, one after the other


NEST = """void top(const Row* in, Row* out, int n, int times) {
  for (int t = 0; t < times; ++t) {
    for (int i = 0; i < n; ++i) {
      Row one = in[i], sum;
PRAGMA
      for (int k = 0; k < COUNT; ++k) sum.data[k] = one.data[k] * 3;
      out[i] = sum;
    }
  }
}
"""


def test_a_short_loop_between_accesses_is_unrolled(tmp_path: Path) -> None:
    program = compiled(NEST.replace("PRAGMA", "").replace("COUNT", "16"), tmp_path)
    assert loops_that_wait(program) == {}
    assert len(list(loops_of(program.processes["top"].body))) == 2
    design = write_design(program, "top", tmp_path)
    assert [region.interval for region in design.regions if region.interval is not None] == [1]


def test_a_loop_with_a_pragma_stays_as_it_is(tmp_path: Path) -> None:
    program = compiled(
        NEST.replace("PRAGMA", "")
        .replace("k)", "k) {\n#pragma HLS PIPELINE\n")
        .replace("* 3;", "* 3; }")
        .replace("COUNT", "16"),
        tmp_path,
    )
    assert len(list(loops_of(program.processes["top"].body))) == 3


def test_a_long_loop_stays_as_it_is(tmp_path: Path) -> None:
    text = """void top(const int* in, int* out, int n) {
  for (int i = 0; i < n; ++i) {
    int one = in[i * i];
    for (int k = 0; k < 65; ++k) one = one * 3 ^ k;
    out[i] = one;
  }
}
"""
    program = compiled(text, tmp_path)
    assert len(list(loops_of(program.processes["top"].body))) == 2
