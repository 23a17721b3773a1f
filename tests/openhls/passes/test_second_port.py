# SPDX-License-Identifier: Apache-2.0
"""Which array arguments have a second read port, and the interval that it allows."""

from pathlib import Path

import pytest

from openhls.emit.design import Design
from openhls.pipeline import compile_program, write_design

LOOP = """
  for (int i = 0; i < 8; ++i) {
#pragma HLS PIPELINE II = 1
    BODY
  }
"""


def built(body: str, folder: Path, pragmas: str = "") -> Design:
    source = folder / "program.cpp"
    loop = LOOP.replace("BODY", body)
    source.write_text(f"int top(int a[16], int n) {{\n{pragmas}\n  int sum = 0;{loop}  return sum;\n}}\n")
    return write_design(compile_program(source, "top"), "top", folder)


def interval(design: Design) -> int | None:
    (found,) = (region.interval for region in design.regions if region.interval is not None)
    return found


def ports(design: Design) -> int:
    """Read ports of the first bank."""
    text = (design.folder / "rtl/top.sv").read_text()
    return sum(f" {name}_q{number}," in text for name in ("a", "a_0") for number in (0, 1))


CYCLIC = "#pragma HLS ARRAY_PARTITION variable = a cyclic factor = 2"
# What an iteration does, the interval that comes of it, and the read ports of a bank.
BODIES = {
    "two reads": ("sum += a[i] * a[15 - i];", 1, 2, ""),
    "two reads of a memory that has one port": (
        "sum += a[i] * a[15 - i];",
        2,
        1,
        "#pragma HLS BIND_STORAGE variable = a type = rom_1p",
    ),
    "three reads": ("sum += a[i] * a[15 - i] + a[i ^ 5];", 2, 2, ""),
    "one read": ("sum += a[i];", 1, 1, ""),
    "a read of each bank": ("sum += a[2 * i] * a[2 * i + 1];", 1, 1, CYCLIC),
    "two reads of each bank": ("sum += a[2 * i] * a[2 * i + 1] + a[14 - 2 * i] * a[15 - 2 * i];", 1, 2, CYCLIC),
    "reads and a store": ("sum += a[i] * a[15 - i]; a[i] = n;", 2, 1, ""),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_a_loop_reads_twice_has_two_ports(name: str, tmp_path: Path) -> None:
    body, wanted, count, pragmas = BODIES[name]
    design = built(body, tmp_path, pragmas)
    assert (interval(design), ports(design)) == (wanted, count)


def test_an_array_that_a_stage_gets_has_one_port(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(
        "static void part(const int a[16], int* sum) {\n  int total = 0;"
        f"{LOOP.replace('BODY', 'total += a[i] * a[15 - i];')}  *sum = total;\n}}\n"
        "void top(const int a[16], int* sum) {\n#pragma HLS DATAFLOW\n  part(a, sum);\n}\n"
    )
    assert ports(write_design(compile_program(source, "top"), "top", tmp_path)) == 1
