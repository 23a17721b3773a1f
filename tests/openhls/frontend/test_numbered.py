# SPDX-License-Identifier: Apache-2.0
"""Pointers as numbers: which of them are refused, and where. tests/openhls/programs/addresses.cpp has what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from openhls.errors import Unsupported
from openhls.ir import Opcode, Program, loops_of, operations_of
from openhls.pipeline import compile_program, write_design

REFUSED = {
    "order of two arrays": (
        "void top(int a[8], int b[8], int n, int& r) {\n  int* p = n & 1 ? a : b;\n  int* q = n & 2 ? a : b;\n"
        "  r = p < q;\n}\n",
        4,
        "an order of pointers that may lead to different variables; compare pointers into one array",
    ),
    "difference of two arrays": (
        "void top(int a[8], int b[8], int n, int& r) {\n  int* p = n & 1 ? a : b;\n  r = p - a;\n}\n",
        3,
        "a difference of pointers that may lead to different variables; subtract pointers into one array",
    ),
    "an argument and null": (
        "void top(const int* a, int* r, int n) {\n#pragma HLS INTERFACE m_axi port = a\n"
        "#pragma HLS INTERFACE m_axi port = r\n  if (a) r[n] = 1;\n}\n",
        4,
        "a pointer that is an argument is compared with another one, or with a null pointer; pass a number",
    ),
    "a number": (
        "void top(int n, int& r) {\n  int a[8];\n  for (int i = 0; i < 8; ++i) a[i] = i;\n"
        "  r = int((unsigned long)(a) >> 4) + a[n & 7];\n}\n",
        4,
        "an address used as a value; use an array and an index",
    ),
    "pointers in an argument": (
        "struct Node { int v; Node* next; };\nvoid top(Node nodes[8], int n, int& r) {\n  Node* p = nodes;\n"
        "  for (int i = 0; i < n; ++i)\n    p = p->next;\n  r = p->v;\n}\n",
        5,
        "a pointer in memory that the function does not declare; keep pointers in local variables and arrays",
    ),
    "pointers in a table": (
        "static int a[4] = {1, 2}, b[4] = {5};\nstatic int* const rows[2] = {a, b};\n"
        "void top(int n, int& r) {\n  r = rows[n & 1][n >> 1 & 3];\n  a[n & 3] = b[n & 3] = n;\n}\n",
        4,
        "a pointer in memory that the function does not declare",
    ),
    "rows and columns at once": (
        "void top(int n, int& r) {\n  int grid[4][6];\n  for (int i = 0; i < 24; ++i) grid[i / 6][i % 6] = i * n;\n"
        "  int* kept[2] = {grid[n & 3] + (n >> 2 & 1), grid[1]};\n  r = *kept[n >> 3 & 1];\n}\n",
        5,
        "a pointer in memory that moves in steps of several sizes; keep an index instead",
    ),
    "a chosen function": (
        "static int add(int a, int b) { return a + b; }\nstatic int sub(int a, int b) { return a - b; }\n"
        "void top(int n, int& r) {\n  int (*f)(int, int) = n & 1 ? add : sub;\n  r = f(n, 3);\n}\n",
        5,
        "a call through a pointer; call the function by its name",
    ),
    "a chosen row for a stage": (
        "static void set(int* a, int n) { for (int i = 0; i < 8; ++i) a[i] = i * n; }\n"
        "static void get(int* a, int& r) { r = a[3]; }\n"
        "void top(int n, int& r) {\n#pragma HLS DATAFLOW\n  int a[2][8];\n  set(a[n & 1], n);\n  get(a[0], r);\n}\n",
        6,
        "an element chosen at run time is passed to a stage; pass the array and the index",
    ),
    "a chosen array for a stage": (
        "static void set(int* a, int n) { for (int i = 0; i < 8; ++i) a[i] = i * n; }\n"
        "static void get(int* a, int& r) { r = a[3]; }\n"
        "void top(int n, int& r) {\n#pragma HLS DATAFLOW\n  int a[8], b[8];\n  set(n & 1 ? a : b, n);\n"
        "  get(a, r);\n}\n",
        6,
        "a pointer that is chosen at run time",
    ),
}


def compiled(text: str, folder: Path) -> Program:
    source = folder / "program.cpp"
    source.write_text(text)
    return compile_program(source, "top")


@pytest.mark.parametrize("name", REFUSED)
def test_pointers_without_a_number_are_refused_by_their_line(name: str, tmp_path: Path) -> None:
    text, line, words = REFUSED[name]
    with pytest.raises(Unsupported) as caught:
        compiled(text, tmp_path)
    assert f"program.cpp:{line}: {words}" in str(caught.value)


WALK = """void top(const int* in, int n, int& sum) {
#pragma HLS INTERFACE m_axi port = in
  sum = 0;
  for (const int* at = in; at != in + n; ++at) sum += *at;
}
"""
BYTES = """void top(int n, int& sum) {
  int few[16];
  for (int* at = few; at != few + 16; ++at) *at = n;
  sum = few[n & 15];
}
"""


def test_a_loop_over_pointers_into_memory_asks_for_them_before_it(tmp_path: Path) -> None:
    (loop,) = loops_of(compiled(WALK, tmp_path).processes["top"].body)
    assert [each.opcode for each in operations_of(loop.body) if each.target.startswith("in")] == [Opcode.READ]


def test_a_pointer_that_moves_in_an_array_counts_elements(tmp_path: Path) -> None:
    program = compiled(BYTES, tmp_path)
    assert [(array.length, array.width) for array in program.processes["top"].arrays] == [(16, 32)]
    regions = write_design(program, "top", tmp_path / "rtl").regions
    assert [region.interval for region in regions if region.interval is not None] == [1]
