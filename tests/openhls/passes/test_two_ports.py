# SPDX-License-Identifier: Apache-2.0
"""Which local arrays have two ports that read or write, and the interval that these allow."""

from pathlib import Path

import pytest

from openhls.emit.design import Design
from openhls.pipeline import compile_program, write_design

TOP = """
#include <hls_stream.h>
void top(hls::stream<int>& in, hls::stream<int>& out, int n) {
  int a[64];
PRAGMAS
  for (int i = 0; i < 64; ++i) a[i] = in.read();
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = INTERVAL
    BODY
  }
  for (int i = 0; i < 64; ++i) out.write(a[i]);
}
"""
CYCLIC = "#pragma HLS ARRAY_PARTITION variable = a cyclic factor = 2"
ONE_PORT = "#pragma HLS BIND_STORAGE variable = a type = ram_1p"
SMALL = "#pragma HLS BIND_STORAGE variable = a type = ram_2p impl = lutram"
TWO_READS = "out.write(a[i] * a[i + 16]);"
# What an iteration does, the interval asked for, the one that comes of it, memories with two ports.
BODIES = {
    "two reads": (TWO_READS, 1, 1, 1, ""),
    "two reads that have two cycles": (TWO_READS, 2, 2, 0, ""),
    "two writes": ("a[2 * i] = n; a[2 * i + 1] = i;", 1, 1, 1, ""),
    "writes of branches that exclude each other": ("if (i & 1) a[i] = n * i * 7;\n    else a[i] = i;", 1, 1, 0, ""),
    "three reads": ("out.write(a[i] * a[i + 16] + a[i + 32]);", 1, 2, 1, ""),
    "two reads and a write": ("a[4 * i] = a[4 * i + 1] + a[4 * i + 2];", 1, 2, 0, ""),
    "a read and a write": ("a[2 * i] = a[2 * i + 1];", 1, 1, 0, ""),
    "one read": ("out.write(a[i]);", 1, 1, 0, ""),
    "two reads of each bank": ("out.write(a[4 * i] + a[4 * i + 1] + a[4 * i + 2] + a[4 * i + 3]);", 1, 1, 2, CYCLIC),
    "a read of each bank": ("out.write(a[2 * i] * a[2 * i + 1]);", 1, 1, 0, CYCLIC),
    "two reads of a memory that has one port": (TWO_READS, 1, 2, 0, ONE_PORT),
    "two reads of a memory of LUTs": (TWO_READS, 1, 2, 0, SMALL),
}


def built(text: str, folder: Path) -> Design:
    source = folder / "program.cpp"
    source.write_text(text)
    return write_design(compile_program(source, "top"), "top", folder)


def memories(design: Design) -> int:
    """Those with two ports."""
    return (design.folder / "rtl/top_process.sv").read_text().count("openhls_ram_two_ports #(")


@pytest.mark.parametrize("name", BODIES)
def test_two_ports_are_there_for_an_interval(name: str, tmp_path: Path) -> None:
    body, wish, wanted, count, pragma = BODIES[name]
    text = TOP.replace("BODY", body).replace("INTERVAL", str(wish)).replace("PRAGMAS", pragma)
    design = built(text, tmp_path)
    (interval,) = (region.interval for region in design.regions if region.wish is not None)
    assert (interval, memories(design)) == (wanted, count)


def test_a_loop_without_a_pragma_asks_for_nothing(tmp_path: Path) -> None:
    text = TOP.replace("BODY", TWO_READS).replace("#pragma HLS PIPELINE II = INTERVAL", "").replace("PRAGMAS", "")
    assert memories(built(text, tmp_path)) == 0
