# SPDX-License-Identifier: Apache-2.0
"""A testbench of the user's: its calls of the top are repeated on the RTL, and its status is handed on."""

import pytest

from openhls.cli import main
from openhls.cosim.testbench import replay_testbench
from openhls.errors import OpenHlsError
from openhls.pipeline import compile_program, write_design

VADD = """
void vadd(const int* a, const int* b, int* c, int n) {
#pragma HLS INTERFACE m_axi port=a bundle=g0
#pragma HLS INTERFACE m_axi port=b bundle=g1
#pragma HLS INTERFACE m_axi port=c bundle=g2
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II=1
    c[i] = a[i] + b[i];
  }
}
"""
VADD_BENCH = """
void vadd(const int* a, const int* b, int* c, int n);
static int a[37], c[37];
int main() {
  int b[37];
  for (int i = 0; i < 37; ++i) a[i] = i, b[i] = 3 * i, c[i] = -1;
  vadd(a, b, c, 37);
  vadd(a, b + 30, c, 5);
  return c[36] == 4 * 36 && c[4] == 3 * 34 + 4 ? 0 : 1;
}
"""
SUMS = """
#include <ap_int.h>
#include <hls_stream.h>
namespace sums {
int top(hls::stream<ap_uint<40>>& in, hls::stream<ap_int<9>>& out, int count, int& total, int& largest) {
#pragma HLS INTERFACE axis port=in
#pragma HLS INTERFACE axis port=out
  ap_uint<40> most = 0;
  total += count;
  for (int i = 0; i < count; ++i) {
    const ap_uint<40> word = in.read();
    if (word > most) most = word;
    out.write(ap_int<9>(word.range(8, 0)));
  }
  largest = most.range(31, 0);
  return count * 2;
}
}
"""
SUMS_BENCH = """
#include <ap_int.h>
#include <hls_stream.h>
namespace sums {
int top(hls::stream<ap_uint<40>>& in, hls::stream<ap_int<9>>& out, int count, int& total, int& largest);
}
int main() {
  hls::stream<ap_uint<40>> in;
  hls::stream<ap_int<9>> out;
  int total = 5, largest = 0, sum = 0;
  for (int i = 0; i < 12; ++i) in.write(ap_uint<40>(i) << 33 | 7 * i);
  sum += sums::top(in, out, 3, total, largest);
  sum += sums::top(in, out, 0, total, largest);
  sum += sums::top(in, out, 8, total, largest);  // one word is left in the stream
  return sum == 22 && total == 16 && in.size() == 1 && out.size() == 11 ? 42 : 1;
}
"""

# An array that is a stream, between streams: inputs are recorded in the order of the arguments.
MIXED = """
#include <ap_int.h>
#include <hls_stream.h>
using Word = ap_uint<40>;
void mixed(hls::stream<Word>& in, const short a[4], hls::stream<ap_uint<9>>& more, hls::stream<Word>& out) {
#pragma HLS INTERFACE axis port=a
  for (int i = 0; i < 4; ++i) {
#pragma HLS PIPELINE II=1
    out.write(in.read() * 3 + a[i] + more.read());
  }
}
"""
MIXED_BENCH = """
#include <ap_int.h>
#include <hls_stream.h>
using Word = ap_uint<40>;
void mixed(hls::stream<Word>& in, const short a[4], hls::stream<ap_uint<9>>& more, hls::stream<Word>& out);
int main() {
  hls::stream<ap_uint<40>> in, out;
  hls::stream<ap_uint<9>> more;
  for (int call = 0; call < 2; ++call) {
    short a[4];
    for (int i = 0; i < 4; ++i) a[i] = 5 * i + call, in.write(ap_uint<40>(i) << 35 | 1), more.write(7 + i);
    mixed(in, a, more, out);
  }
  return out.size() == 8 && out.read() == 10 ? 0 : 1;
}
"""


@pytest.fixture
def sources(tmp_path):
    def write(top, bench):
        (tmp_path / "top.cpp").write_text(top)
        (tmp_path / "bench.cpp").write_text(bench)
        return tmp_path / "top.cpp", tmp_path / "bench.cpp"

    return write


def replay(top, bench, function, folder, seen=None):
    """`seen`: other C++ that the testbench runs with."""
    design = write_design(compile_program((top,), function, (), ()), function, folder / "rtl")
    return replay_testbench(design, [seen or top], function, [bench])


def test_pointers_have_what_lies_behind_them(sources, tmp_path):
    run = replay(*sources(VADD, VADD_BENCH), "vadd", tmp_path)
    assert (run.status, run.calls, run.found.problem) == (0, 2, "")
    assert run.found.free.words == 3 * 37 + (37 + 7 + 37)
    assert run.found.stalled.cycles != run.found.free.cycles


def test_streams_scalars_and_results(sources, tmp_path, capsys):
    top, bench = sources(SUMS, SUMS_BENCH)
    arguments = ["cosim", str(top), "--top", "top", "--tb", str(bench), "--stalls", "--out", str(tmp_path / "rtl")]
    assert main(arguments) == 42
    assert "status 42, 3 calls of top" in capsys.readouterr().out


def test_inputs_are_recorded_in_the_order_of_the_arguments(sources, tmp_path):
    run = replay(*sources(MIXED, MIXED_BENCH), "mixed", tmp_path)
    assert (run.status, run.calls, run.found.problem) == (0, 2, "")
    assert run.found.free.words == 8


def test_other_results_on_the_rtl_are_found(sources, tmp_path):
    top, bench = sources(VADD, VADD_BENCH)
    other = tmp_path / "other.cpp"
    other.write_text(VADD.replace("a[i] + b[i]", "a[i] + b[i] + (i == 36)"))
    run = replay(top, bench, "vadd", tmp_path, seen=other)
    assert run.status == 1  # the testbench sees it in software, too
    assert "c" in run.found.free.problem


@pytest.mark.parametrize(
    ("bench", "problem"),
    [
        ("int main() { return 3; }", "ended with status 3 and never called vadd"),
        (VADD + "int main() { int x = 0, y = 0; vadd(&x, &x, &y, 1); }", "includes the source of vadd"),
        (VADD_BENCH.replace("b + 30, c, 5", "a + 30, c, 5"), "the same memory to two arguments"),
        *(
            pytest.param(*other, marks=pytest.mark.slow)  # what g++ or its program says is handed on
            for other in (
                (VADD_BENCH.replace("b + 30, c, 5", "b + 30, c, 8"), "the testbench failed as software"),
                (VADD_BENCH.replace("vadd(a, b, c, 37)", "vadd(a, b, c)"), "too few arguments"),
            )
        ),
    ],
)
def test_what_cannot_be_repeated_is_refused(sources, tmp_path, bench, problem):
    with pytest.raises(OpenHlsError, match=problem):
        replay(*sources(VADD, bench), "vadd", tmp_path)
