# SPDX-License-Identifier: Apache-2.0
"""Which arrays between stages have two buffers, and the cycles that this saves."""

from pathlib import Path

import pytest

from openhls.cosim import cosimulate
from openhls.emit.overlap import overlaps_of
from openhls.pipeline import compile_program, finish_program, write_design
from openhls.schedule.target import target_of

STAGES = """
static void fill(const int in[64], int row, int a[64]) {
  for (int i = 0; i < 64; ++i) {
#pragma HLS PIPELINE II = 1
    a[i] = in[i] + row;
  }
}
static void work(int a[64], int b[64]) {
  for (int i = 0; i < 64; ++i) {
#pragma HLS PIPELINE II = 2
    b[i] = a[63 - i] * 3;
  }
}
static void give(const int b[64], int out[64], int row) {
  for (int i = 0; i < 64; ++i) {
#pragma HLS PIPELINE II = 1
    out[i] = b[i] ^ row;
  }
}
static void add(const int b[64], int* sum) {
  int total = *sum;
  for (int i = 0; i < 64; ++i) {
#pragma HLS PIPELINE II = 1
    total += b[i];
  }
  *sum = total;
}
"""
HEAD = "void top(const int in[64], int out[64], int n) {\n"
LOOP = "  for (int row = 0; row < n; ++row) {\n"
FLOW = "#pragma HLS DATAFLOW\n"
OWN = "    int a[64], b[64];\n"
CALLS = "    fill(in, row, a);\n    work(a, b);\n    give(b, out, row);\n"
PLAIN = f"{HEAD}{LOOP}{FLOW}{OWN}{CALLS}  }}\n}}\n"

# A top, and its arrays with two buffers.
TOPS = {
    "stages in a loop": (PLAIN, {"a", "b"}),
    "a region in a loop": (f"{HEAD}{LOOP}    {{\n{FLOW}{OWN}{CALLS}    }}\n  }}\n}}\n", {"a", "b"}),
    "a function that is called repeatedly": (
        f"static void all(const int in[64], int out[64], int row) {{\n{FLOW}{OWN}{CALLS}}}\n"
        f"{HEAD}{LOOP}    all(in, out, row);\n  }}\n}}\n",
        {"a", "b"},
    ),
    "an array of all iterations": (f"{HEAD}  int b[64];\n{LOOP}{FLOW}    int a[64];\n{CALLS}  }}\n}}\n", {"a"}),
    "an array that the loop sets": (
        f"{HEAD}{LOOP}    int a[64], b[64];\n    a[5] = row;\n    {{\n{FLOW}{CALLS}    }}\n  }}\n}}\n",
        set(),
    ),
    "no loop": (f"{HEAD}{FLOW}{OWN}{CALLS.replace('row', 'n')}}}\n", set()),
    "a first stage that needs the last one": (
        "void top(int in[64], int n) {\n" + LOOP + FLOW + OWN + CALLS.replace("out", "in") + "  }\n}\n",
        set(),
    ),
    "a stage that gives a number": (
        f"int top(const int in[64], int n) {{\n  int sum = 0;\n{LOOP}{FLOW}{OWN}"
        f"{CALLS.replace('give(b, out, row)', 'add(b, &sum)')}  }}\n  return sum;\n}}\n",
        set(),
    ),
}


@pytest.mark.parametrize("name", TOPS)
def test_what_iterations_fill_anew_has_two_buffers(name: str, tmp_path: Path) -> None:
    text, doubled = TOPS[name]
    source = tmp_path / "program.cpp"
    source.write_text(STAGES + text)
    program = finish_program(compile_program(source, "top"), target_of())
    found = overlaps_of(program.processes["top"]).values()
    assert {array for overlap in found for array in overlap.doubled} == doubled


def test_an_iteration_takes_as_long_as_its_slowest_stage(tools: None, tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(STAGES + PLAIN)
    design = write_design(compile_program(source, "top"), "top", tmp_path)
    cycles = {}
    for rows in (1, 20):
        found = cosimulate(design, source, "top", cases=1, seed=1, choices={"n": [(rows, rows, 1)]}, patience=5000)
        assert found.problem == ""
        (cycles[rows],) = found.free.cycles
    slowest = 64 * 2  # of three stages
    assert cycles[1] > 64 + slowest + 64
    assert cycles[20] < 20 * (slowest + 12) + cycles[1]
