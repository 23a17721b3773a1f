# SPDX-License-Identifier: Apache-2.0
"""hls::burst_maxi as software and as RTL: requests and their elements, in any order that the C++ has."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from openhls.errors import OpenHlsError
from openhls.fuzz.batch import run_batch
from openhls.pipeline import compile_program

HEAD = "#include <ap_int.h>\n#include <hls_burst_maxi.h>\n"
# Two requests before the first element; elements that are numbers with padding; copies of the object.
TURNED = """
static void turned_read(hls::burst_maxi<ap_int<20>> from, int kept[32], int n) {
  from.read_request(32, n + 1);
  from.read_request(0, 16);
  for (int i = 0; i < n + 17; ++i) {
    const int word = from.read();
    if (i < 32) kept[i] = word;
  }
}
void turned(hls::burst_maxi<ap_int<20>> in, hls::burst_maxi<ap_int<33>> out, int n) {
#pragma HLS INTERFACE m_axi port = in bundle = a
#pragma HLS INTERFACE m_axi port = out bundle = b
  int kept[32];
  for (int i = 0; i < 32; ++i) kept[i] = i;
  turned_read(in, kept, n);
  out.write_request(3, 16);
  out.write_request(40, n + 1);
  for (int i = 0; i < n + 17; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(ap_int<33>(kept[i & 31]) - 7);
  }
  out.write_response();
  out.write_response();
}
"""
# A branch asks, stages have a port each, and one port is both read and written.
BOTH = """
static void both_load(hls::burst_maxi<unsigned char> from, hls::stream<int>& to, int n) {
  from.read_request(1, n + 4);
  for (int i = 0; i < n + 4; ++i) to.write(from.read());
}
static void both_store(hls::stream<int>& from, hls::burst_maxi<int> to, int n) {
  if (n & 1) {
    to.write_request(0, n + 4);
  } else {
    to.write_request(64, n + 4);
  }
  for (int i = 0; i < n + 4; ++i) to.write(3 * from.read());
  to.write_response();
  to.read_request(n, 2);
  const int first = to.read();
  const int sum = first + to.read();
  to.write_request(127, 1);
  to.write(sum);
  to.write_response();
}
void both(hls::burst_maxi<unsigned char> in, hls::burst_maxi<int> out, int n) {
#pragma HLS INTERFACE m_axi port = in bundle = a
#pragma HLS INTERFACE m_axi port = out bundle = a
#pragma HLS DATAFLOW
  hls::stream<int> between;
  both_load(in, between, n);
  both_store(between, out, n);
}
"""


def random_bursts(seed: int, top: str) -> str:
    """Requests and loops over their elements, one after the other; some ask for several runs first."""
    rng = random.Random(seed)
    kind = rng.choice(("int", "short", "ap_uint<64>", "ap_int<12>", "ap_uint<128>"))
    lines = [
        *(f"void {top}(hls::burst_maxi<{kind}> in, hls::burst_maxi<{kind}> out, int n) {{", "  int sum = n;"),
        *(f"#pragma HLS INTERFACE m_axi port = {name} bundle = gmem{rng.randrange(2)}" for name in ("in", "out")),
    ]
    for _ in range(rng.randrange(1, 4)):
        runs = [(rng.randrange(40), rng.choice(("n + 1", "5", "n / 2 + 3"))) for _ in range(rng.randrange(1, 3))]
        write = rng.random() < 0.5
        name, asks = ("out", "write") if write else ("in", "read")
        lines += [f"  {name}.{asks}_request({first}, {count});" for first, count in runs]
        for _, count in runs:
            lines.append(f"  for (int i = 0; i < {count}; ++i) {{")
            lines += ["#pragma HLS PIPELINE"] if rng.random() < 0.5 else []
            word = f"    out.write(sum {rng.choice('+^')} i);" if write else "    sum += int(in.read()) ^ i;"
            lines += [word, "  }"]
        lines += ["  out.write_response();"] * (len(runs) if write else 0)
    lines += ["  out.write_request(100, 1);", "  out.write(sum);", "  out.write_response();", "}", ""]
    return "\n".join([HEAD, *lines])


def test_bursts_move_the_same_elements_in_hardware(tools: None, tmp_path: Path) -> None:
    programs = {"turned": HEAD + TURNED, "both": HEAD + "#include <hls_stream.h>\n" + BOTH}
    programs |= {f"bursts_{seed}": random_bursts(seed, f"bursts_{seed}") for seed in range(6)}
    verdicts = run_batch(programs, tmp_path / "batch")
    assert [(each.name, each.problem, each.refused) for each in verdicts if each.problem or each.refused] == []
    assert all(each.words > 1000 for each in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(6, 200, 25))
def test_random_bursts_are_the_same_in_hardware(first: int, tools: None, tmp_path: Path) -> None:
    programs = {f"bursts_{seed}": random_bursts(seed, f"bursts_{seed}") for seed in range(first, first + 25)}
    verdicts = run_batch(programs, tmp_path / "batch")
    assert [(each.name, each.problem, each.refused) for each in verdicts if each.problem or each.refused] == []


@pytest.mark.parametrize(
    ("kind", "pragma", "says"),
    [
        ("int", "", "an hls::burst_maxi without INTERFACE m_axi"),
        ("ap_int<1500>", "#pragma HLS INTERFACE m_axi port = out", "elements of 1536 bits in memory"),
    ],
)
def test_what_is_no_element_or_no_memory_is_refused(kind: str, pragma: str, says: str, tmp_path: Path) -> None:
    source = tmp_path / "top.cpp"
    body = "  out.write_request(0, 1);\n  out.write(1);\n  out.write_response();\n"
    source.write_text(f"{HEAD}void top(hls::burst_maxi<{kind}> out) {{\n{pragma}\n{body}}}\n")
    with pytest.raises(OpenHlsError, match=r"top\.cpp:\d") as caught:
        compile_program(source, "top")
    assert says in str(caught.value)
