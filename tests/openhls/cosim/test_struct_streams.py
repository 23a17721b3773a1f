# SPDX-License-Identifier: Apache-2.0
"""Structs on streams of the top: their bytes in memory, whatever lies in the padding."""

from __future__ import annotations

from pathlib import Path

from openhls.cosim.testbench import replay_testbench
from openhls.fuzz.batch import run_batch
from openhls.pipeline import compile_program, write_design

PACKED = """#include <ap_int.h>
#include <hls_stream.h>
struct Pixel { char r; short g; ap_int<5> b; bool last; ap_uint<37> wide; unsigned char pair[2]; };
struct Sum { ap_int<20> sum; bool odd; };
static void packed_pass(hls::stream<Pixel>& in, hls::stream<Pixel>& out, int n) {
  for (int i = 0; i < n; ++i) {
    Pixel p = in.read();
    p.g += p.r;
    p.b = -p.b;
    p.pair[1] = p.pair[0] + i;
    out.write(p);
  }
}
static void packed_add(hls::stream<Pixel>& in, hls::stream<Sum> out[2], int n) {
  for (int i = 0; i < n; ++i) {
    const Pixel p = in.read();
    Sum s;
    s.sum = p.r + p.g + p.b + p.wide.to_int();
    s.odd = p.last;
    out[i & 1].write(s);
  }
}
void packed(hls::stream<Pixel>& in, hls::stream<Pixel>& more, hls::stream<Sum> out[2], hls::stream<Pixel>& same,
            int n) {
#pragma HLS DATAFLOW
  packed_pass(in, same, n);
  packed_add(more, out, n);
}
"""
BENCH = """
#include <cstring>
#include <hls_stream.h>
struct Wide { char one; int two; };
void wide(hls::stream<Wide>& in, hls::stream<Wide>& out);
int main() {
  hls::stream<Wide> in, out;
  for (int i = 0; i < 4; ++i) {
    Wide word;
    std::memset(&word, 0x55 + i, sizeof word);  // the padding, too
    word.one = i;
    word.two = -i;
    in.write(word);
  }
  wide(in, out);
  for (int i = 0; i < 4; ++i) {
    const Wide word = out.read();
    if (word.one != i + 1 || word.two != -i) return 1;
  }
  return 0;
}
"""
WIDE = """#include <hls_stream.h>
struct Wide { char one; int two; };
void wide(hls::stream<Wide>& in, hls::stream<Wide>& out) {
  for (int i = 0; i < 4; ++i) {
    Wide word = in.read();
    ++word.one;
    out.write(word);
  }
}
"""


def test_structs_travel_as_their_bytes(tools: None, tmp_path: Path) -> None:
    (verdict,) = run_batch({"packed": PACKED}, tmp_path / "batch")
    assert (verdict.problem, verdict.refused) == ("", "")
    assert verdict.words > 200


def test_padding_of_a_testbench_does_not_count(tools: None, tmp_path: Path) -> None:
    top, bench = tmp_path / "wide.cpp", tmp_path / "bench.cpp"
    top.write_text(WIDE)
    bench.write_text(BENCH)
    design = write_design(compile_program(top, "wide"), "wide", tmp_path / "rtl")
    run = replay_testbench(design, [top], "wide", [bench])
    assert (run.status, run.calls, run.found.problem) == (0, 1, "")
