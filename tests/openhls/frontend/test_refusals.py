# SPDX-License-Identifier: Apache-2.0
"""What is outside the subset is refused with the C++ line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from openhls.errors import OpenHlsError, Unsupported
from openhls.frontend.compile import compile_program

HEAD = """#include <ap_int.h>
#include <hls_stream.h>
using Words = hls::stream<ap_uint<32>>;
"""

# Source after HEAD (three lines), the line that the message must name, and words of the message.
REFUSED = {
    "memory": (
        "void top(const int* data, Words& out, int n) {\n  for (int i = 0; i < n; ++i) out.write(data[i]);\n}\n",
        5,
        "m_axi is not supported",
    ),
    "float": ("void top(Words& out, float x) {\n  out.write(ap_uint<32>(int(x * 2)));\n}\n", 5, "integers"),
    "floating point inside": (
        "void top(Words& out, int x) {\n  float y = x;\n  y = y * 3;\n  out.write(int(y));\n}\n",
        5,
        "integers",
    ),
    "unrolling without a count": (
        "void top(Words& in, Words& out, int n) {\n  for (int i = 0; i < n; ++i) {\n#pragma HLS UNROLL\n"
        "    out.write(in.read());\n  }\n}\n",
        5,
        "constant bounds",
    ),
    "pipeline around a loop": (
        "void top(Words& in, Words& out, int n) {\n  for (int i = 0; i < n; ++i) {\n#pragma HLS PIPELINE\n"
        "    for (int j = 0; j < i; ++j) out.write(in.read());\n  }\n}\n",
        6,
        "unroll the inner loops",
    ),
    "pipeline outside a loop": ("void top(Words& out) {\n#pragma HLS PIPELINE\n  out.write(1);\n}\n", 5, "in the body"),
    "unknown pragma": ("void top(Words& out) {\n#pragma HLS STABLE variable = out\n  out.write(1);\n}\n", 5, "STABLE"),
    "a pragma with a name for a number": (
        "constexpr int kTwo = 2;\nvoid top(Words& in, Words& out, int n) {\n  for (int i = 0; i < n; ++i) {\n"
        "#pragma HLS PIPELINE II = kTwo\n    out.write(in.read());\n  }\n}\n",
        7,
        "write the number",
    ),
    "global variable": (
        "int total = 0;\nvoid top(Words& out, int x) {\n  total += x;\n  out.write(total);\n}\n",
        6,
        "global variable",
    ),
    "stream in both directions": (
        "void top(Words& both) {\n  both.write(both.read() + 1);\n}\n",
        4,
        "reads and writes the stream both",
    ),
    "function without a body": (
        "int elsewhere(int);\nvoid top(Words& out, int x) {\n  out.write(elsewhere(x));\n}\n",
        6,
        "no body",
    ),
    "recursion": (
        "int again(int n) { return n < 2 ? n : again(n - 1) + again(n - 2); }\n"
        "void top(Words& out, int x) {\n  out.write(again(x));\n}\n",
        4,
        "again calls itself",
    ),
    "conditional stage": (
        "void copy(Words& in, Words& out) { out.write(in.read()); }\nvoid top(Words& in, Words& out, bool b) {\n"
        "#pragma HLS DATAFLOW\n  Words between;\n  copy(in, between);\n  if (b) return;\n  copy(between, out);\n}\n",
        10,
        "unconditionally",
    ),
    "scalar between stages": (
        "void give(Words& in, int& x) { x = in.read(); }\nvoid take(int x, Words& out) { out.write(x); }\n"
        "void top(Words& in, Words& out) {\n#pragma HLS DATAFLOW\n  int x;\n  give(in, x);\n  take(x, out);\n}\n",
        10,
        "stream",
    ),
    "array as a whole": (
        "void top(Words& out, int i) {\n  int big[500] = {};\n  big[i] = 1;\n  out.write(big[7 - i]);\n}\n",
        5,
        "write the loop",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_place_and_an_advice(name: str, tmp_path: Path) -> None:
    text, line, words = REFUSED[name]
    source = tmp_path / "program.cpp"
    source.write_text(HEAD + text)
    with pytest.raises(Unsupported) as caught:
        compile_program(source, "top")
    assert f"{source}:{line}: " in str(caught.value) or f"{source}:{line} in " in str(caught.value)
    assert words in str(caught.value)


def test_wrong_cpp_gives_the_words_of_clang(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(HEAD + "void top(Words& out) {\n  out.write(nothing);\n}\n")
    with pytest.raises(OpenHlsError, match=r"program.cpp:5:.*nothing"):
        compile_program(source, "top")


def test_a_missing_top_is_named(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(HEAD + "void top(Words& out) {\n  out.write(1);\n}\n")
    with pytest.raises(OpenHlsError, match="no function named other"):
        compile_program(source, "other")


@pytest.mark.parametrize(
    "expression", ["ap_int<9>(x).xor_reduce()", "ap_uint<90>(x).nand_reduce()", "(a, b) + a", "(a, b) == 3"]
)
def test_what_the_headers_of_software_get_wrong_is_refused(expression: str, tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    body = f"void top(Words& out, int x) {{\n  ap_uint<5> a = x, b = x >> 5;\n  out.write({expression});\n}}\n"
    source.write_text(HEAD + body)
    with pytest.raises(OpenHlsError, match=r"openhls:|deleted"):
        compile_program(source, "top")
