# SPDX-License-Identifier: Apache-2.0
"""What cosim says can be relied on: it finds no fault where there is none, and names one of the C++ as the cause."""

from pathlib import Path

import pytest

from openhls.cosim import Cosimulation, cosimulate
from openhls.cosim.testbench import replay_testbench
from openhls.fuzz.benches import DOUBLED, random_bench
from openhls.pipeline import compile_program, write_design

HEAD = "#include <ap_axi_sdata.h>\n#include <hls_stream.h>\nusing Words = hls::stream<int>;\n"
CALLS, SEED = 80, 1


def compared(text: str, folder: Path, cases: int = 4, patience: int = 1_000_000) -> Cosimulation:
    source = folder / "top.cpp"
    source.write_text(HEAD + text)
    program = compile_program(source, "top")
    design = write_design(program, "top", folder)
    return cosimulate(design, source, program.function, cases=cases, seed=1, patience=patience, explain=True)


def test_testbenches_feed_and_collect_as_they_like(tools: None, tmp_path: Path) -> None:
    top, bench = tmp_path / "doubled.cpp", tmp_path / "bench.cpp"
    top.write_text(DOUBLED)
    bench.write_text(random_bench(SEED, CALLS))
    design = write_design(compile_program(top, "doubled"), "doubled", tmp_path / "rtl")
    run = replay_testbench(design, [top], "doubled", [bench])
    assert (run.status, run.calls, run.found.problem) == (0, CALLS, "")


UNDEFINED = """void top(hls::stream<unsigned>& in, Words& out) {
  for (int i = 0; i < 8; i++) {
    unsigned short word = in.read();
    out.write(word * word > 0);
  }
}
"""
UNWRITTEN = """void top(hls::stream<ap_uint<32>>& in, hls::stream<ap_axiu<32, 0, 0, 0>>& out) {
  for (int i = 0; i < 4; i++) {
    ap_axiu<32, 0, 0, 0> word;
    word.data = in.read();
    word.last = i == 3;
    out.write(word);
  }
}
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (UNDEFINED, "top.cpp:7: undefined behaviour of the C++: signed integer overflow"),
        (UNWRITTEN, "stream out, word 0 (keep, strb) depends on variables or fields that the C++ never writes"),
    ],
)
def test_a_fault_of_the_cpp_is_named_as_the_cause(text: str, cause: str, tools: None, tmp_path: Path) -> None:
    assert compared(text, tmp_path).problem.startswith(cause)


# What ends a job that does not come to an end, in three ways.
FULL = """static void give(Words& in, hls::stream<int, 3>& queue) {
  for (int i = 0; i < 2; i++) queue.write(in.read());
}
static void take(hls::stream<int, 3>& queue, Words& out) {
  out.write(queue.read());
}
void top(Words& in, Words& out) {
#pragma HLS DATAFLOW
  static hls::stream<int, 3> queue;
  give(in, queue);
  take(queue, out);
}
"""
BEYOND = """void top(Words& in, Words& out, int n) {
  hls::stream<int, 4> queue;
  for (int i = 0; i < n; i++) queue.write(in.read());
  for (int i = 0; i < n; i++) out.write(queue.read());
}
"""
LONG = """int top(int n) {
  for (int i = 0; i < 9000; i++) {
#pragma HLS PIPELINE II = 1
    n = (n << 1) ^ i;
  }
  return n;
}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FULL, "the job waits for ever; in: 2 of 2 words taken"),
        pytest.param(BEYOND, "top.cpp:6: an index beyond queue, which has 4 elements", marks=pytest.mark.slow),
        (LONG, "no word moved for 3000 cycles, and the job goes on"),
    ],
)
def test_a_job_that_does_not_end_says_why(text: str, words: str, tools: None, tmp_path: Path) -> None:
    assert words in compared(text, tmp_path, cases=6, patience=3000).problem
