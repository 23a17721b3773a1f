# SPDX-License-Identifier: Apache-2.0
"""What is outside the subset is refused with the C++ line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from openhls.errors import OpenHlsError, Unsupported
from openhls.pipeline import compile_program

HEAD = """#include <ap_int.h>
#include <hls_stream.h>
using Words = hls::stream<ap_uint<32>>;
"""

# Source after HEAD (three lines), the line that the message must name, and words of the message.
REFUSED = {
    "memory": (
        "void top(const int* data, Words& out, int n) {\n  for (int i = 0; i < n; ++i) out.write(data[i]);\n}\n",
        5,
        "INTERFACE mode = m_axi port = data",
    ),
    "float": ("void top(Words& out, float x) {\n  out.write(ap_uint<32>(int(x * 2)));\n}\n", 5, "integers"),
    "floating point inside": (
        "void top(Words& out, int x) {\n  float y = x;\n  y = y * 3;\n  out.write(int(y));\n}\n",
        5,
        "integers",
    ),
    "pipeline around a loop": (
        "void top(Words& in, Words& out, int n) {\n  for (int i = 0; i < n; ++i) {\n#pragma HLS PIPELINE\n"
        "    for (int j = 0; j < i; ++j) out.write(in.read());\n  }\n}\n",
        6,
        "unroll the inner loops",
    ),
    "a pragma with an unknown name for a number": (
        "void top(Words& in, Words& out, int n) {\n  for (int i = 0; i < n; ++i) {\n"
        "#pragma HLS PIPELINE II = kTwo\n    out.write(in.read());\n  }\n}\n",
        6,
        "write the number",
    ),
    "struct on a stream of the top": (
        "struct Pair { ap_uint<8> a; float b; };\nvoid top(hls::stream<Pair>& in, Words& out) {\n"
        "  out.write(in.read().a);\n}\n",
        5,
        "argument in: a stream of struct Pair at the top",
    ),
    "struct by value": (
        "struct Pair { int a; short b; };\nvoid top(Pair pair, Words& out) {\n  out.write(pair.a + pair.b);\n}\n",
        5,
        "argument pair: a struct Pair at the top",
    ),
    "array of streams without a length": (
        "void top(Words* in, Words& out) {\n  out.write(in[0].read() + in[1].read());\n}\n",
        4,
        "argument in: an array of streams",
    ),
    "array as a stream, backwards": (
        "void top(const int a[8], Words& out) {\n#pragma HLS INTERFACE axis port = a\n"
        "  for (int i = 0; i < 8; i++) out.write(a[7 - i]);\n}\n",
        6,
        "its elements are not accessed one after the other",
    ),
    "array as a stream, twice": (
        "void top(const int a[8], Words& out) {\n#pragma HLS INTERFACE axis port = a\n"
        "  for (int j = 0; j < 2; j++)\n    for (int i = 0; i < 8; i++) out.write(a[i]);\n}\n",
        7,
        "its elements are not accessed one after the other",
    ),
    "floating point on a stream": (
        "void top(hls::stream<float>& in, Words& out) {\n  out.write(int(in.read()));\n}\n",
        5,
        "loating point",
    ),
    "floating point chosen": (
        "void top(int n, int& o) {\n  float s = 0;\n  for (int i = 0; i < n; i++) s = (i & 1) ? s : s + 1;\n"
        "  o = s;\n}\n",
        6,
        "loating point",
    ),
    "array and stream between stages": (
        "void give(Words& in, int* x, Words& out) {\n  for (int i = 0; i < 9; i++) x[i] = in.read();\n"
        "  out.write(1);\n}\nvoid take(int* x, Words& in, Words& out) {\n"
        "  for (int i = 0; i < 9; i++) out.write(x[8 - i] + in.read());\n}\n"
        "void top(Words& in, Words& out) {\n#pragma HLS DATAFLOW\n  int x[9];\n  Words s;\n  give(in, x, s);\n"
        "  take(x, s, out);\n}\n",
        16,
        "x is passed to two stages, give and take, that would wait for one another",
    ),
    "stream in both directions": (
        "void top(Words& both) {\n  both.write(both.read() + 1);\n}\n",
        4,
        "reads and writes the stream both",
    ),
    "function without a body": (
        "int elsewhere(int);\nvoid top(Words& out, int x) {\n  out.write(elsewhere(x));\n}\n",
        6,
        "a call of elsewhere, which has no body here",
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
    "stream outside the stages": (
        "void copy(Words& in, Words& out) { out.write(in.read()); }\nvoid top(Words& in, Words& out) {\n"
        "#pragma HLS DATAFLOW\n  Words between;\n  copy(in, between);\n  out.write(between.read());\n}\n",
        9,
        "used outside the stages",
    ),
    "stage with a result": (
        "int copy(Words& in, Words& out) { out.write(in.read()); return 1; }\nvoid top(Words& in, Words& out) {\n"
        "#pragma HLS DATAFLOW\n  Words between;\n  int n = copy(in, between);\n  copy(between, out);\n"
        "  out.write(n);\n}\n",
        4,
        "a statement of its own",
    ),
    "array as a whole": (
        "void top(Words& out, int i) {\n  int big[500] = {};\n  big[i] = 1;\n  out.write(big[7 - i]);\n}\n",
        5,
        "write the loop",
    ),
}

MIX = (
    "void mix(int* x, int* y, Words& out) {\n  for (int i = 0; i < 9; i++) {\n    x[i] = i;\n    out.write(y[8 - i]);\n"
    "  }\n}\n"
)
ONE_AND_ALL = (
    "static int all[9];\nstatic int one = 3;\nvoid mix(int* y, Words& out) {\n  for (int i = 0; i < 9; i++) {\n"
    "    all[i] = i;\n    out.write(y[8 - i]);\n  }\n}\nvoid set(Words& in, int& x, Words& out) {\n  one = in.read();\n"
    "  out.write(x);\n}\nvoid top(Words& in, Words& out) {\n#pragma HLS DATAFLOW\n"
)
COMPUTED = {
    "table of what is not in the source": (
        "int outside(int x);\nstatic int table[3] = {outside(1), 2, 3};\n"
        "void top(Words& out, int n) {\n  out.write(table[n]);\n}\n",
        7,
        "variable table; keep to integers, arrays and structs of them, with initial values that the source computes",
    ),
}
TWICE = {
    "array twice in a stage": (
        f"{MIX}void top(Words& out) {{\n#pragma HLS DATAFLOW\n  int both[9] = {{}};\n  mix(both, both, out);\n}}\n",
        13,
        "the array both is passed to a stage of a dataflow region twice",
    ),
    "array twice, once as a static one": (
        f"{ONE_AND_ALL}  mix(all, out);\n}}\n",
        18,
        "the array all is passed to a stage of a dataflow region twice",
    ),
    "number that a stage sets twice": (
        "void set(Words& in, int& x, int& y, Words& out) {\n  x = in.read();\n  out.write(y);\n}\n"
        "void top(Words& in, Words& out) {\n#pragma HLS DATAFLOW\n  int both = 3;\n  set(in, both, both, out);\n}\n",
        11,
        "the variable both is passed to a stage that sets it twice",
    ),
    "number twice, once as a static one": (
        f"{ONE_AND_ALL}  set(in, one, out);\n}}\n",
        18,
        "the variable one is passed to a stage that sets it twice",
    ),
}

MEMORY = "#pragma HLS INTERFACE m_axi port = p\n"
LOOP = "  for (int i = 0; i < n; ++i) {\n#pragma HLS PIPELINE II = 1\n"
IN_MEMORY = {
    "address of memory as a number": (
        f"void top(const int* p, Words& out, int n) {{\n{MEMORY}  out.write((unsigned long)(p) + p[n]);\n}}\n",
        6,
        "an address used as a value",
    ),
    "gather in a pipeline": (
        f"void top(const int* p, Words& in, Words& out, int n) {{\n"
        f"{MEMORY}{LOOP}    out.write(p[in.read()]);\n  }}\n}}\n",
        8,
        "the address depends on what an iteration reads; give it a loop of its own",
    ),
    "gather in a pipeline without II": (
        f"void top(const int* p, Words& in, Words& out, int n) {{\n{MEMORY}  for (int i = 0; i < n; ++i) {{\n"
        "#pragma HLS PIPELINE\n    out.write(p[in.read()]);\n  }\n}\n",
        8,
        "the address depends on what an iteration reads; give it a loop of its own",
    ),
    "condition that varies": (
        f"void top(int* p, Words& in, int n) {{\n{MEMORY}{LOOP}    if (in.read() > 3) p[i] = 1;\n  }}\n}}\n",
        8,
        "a condition that changes from iteration to iteration; give it a loop of its own",
    ),
    "unsigned index that may wrap": (
        f"void top(const int* p, Words& out, int n, unsigned u) {{\n{MEMORY}{LOOP}    out.write(p[u + i]);\n  }}\n}}\n",
        8,
        "an index of 32 bits that may wrap around; use int",
    ),
    "counter that wraps": (
        f"void top(const int* p, Words& out, ap_uint<8> from) {{\n{MEMORY}  for (ap_uint<8> i = from; i != 5; ++i) {{\n"
        "#pragma HLS PIPELINE II = 1\n    out.write(p[i]);\n  }\n}\n",
        8,
        "an index of 8 bits that may wrap around; use int",
    ),
    "short that wraps": (
        f"void top(const int* p, Words& out, int n, short s) {{\n{MEMORY}{LOOP}    out.write(p[s++]);\n  }}\n}}\n",
        8,
        "an index of 16 bits that may wrap around; use int",
    ),
    "step of three": (
        f"void top(const int* p, Words& out, int n) {{\n{MEMORY}  for (int i = 0; i < n; i += 3) {{\n"
        "#pragma HLS PIPELINE II = 1\n    out.write(p[i]);\n  }\n}\n",
        8,
        "moves by 3, which is no power of two",
    ),
    "loop that is left early": (
        f"void top(const int* p, Words& out, int n) {{\n{MEMORY}{LOOP}    out.write(p[i]);\n"
        "    if (n * i == 77) break;\n  }\n}\n",
        8,
        "the number of iterations is not known when the loop begins",
    ),
    "read and written at one place": (
        f"void top(ap_uint<32>* p, Words& in, int n, int s) {{\n{MEMORY}{LOOP}    p[i * s] += in.read();\n  }}\n}}\n",
        8,
        "p is read and written at steps that are not constant",
    ),
    "two places": (
        f"void top(const int* p, Words& out, int n) {{\n{MEMORY}{LOOP}    out.write(p[i] + p[n - i]);\n  }}\n}}\n",
        8,
        "p is accessed twice in an iteration",
    ),
    "unknown port": (
        "void top(const int* p, Words& out) {\n#pragma HLS INTERFACE m_axi port = q\n  out.write(p[0]);\n}\n",
        5,
        "INTERFACE of q, which is no argument",
    ),
    "too many outstanding": (
        "void top(const int* p, Words& out) {\n#pragma HLS INTERFACE m_axi port = p num_read_outstanding = 1000\n"
        "  out.write(p[0]);\n}\n",
        5,
        "use 1 to 256",
    ),
    "copy that may end inside an element": (
        f"#include <string.h>\nvoid top(short* p, int n) {{\n{MEMORY}  short few[8] = {{}};\n"
        "  memcpy(p, few, n);\n}\n",
        8,
        "a copy whose length varies; copy in a loop",
    ),
    "pointer twice in a stage": (
        f"void a(const int* p, int* q) {{ q[3] = p[1]; }}\nvoid top(int* p) {{\n"
        f"{MEMORY}#pragma HLS DATAFLOW\n  a(p, p);\n}}\n",
        8,
        "the pointer p is passed to a stage of a dataflow region twice",
    ),
}


ALL = REFUSED | COMPUTED | TWICE | IN_MEMORY


@pytest.mark.parametrize("name", ALL)
def test_refused_with_a_place_and_an_advice(name: str, tmp_path: Path) -> None:
    text, line, words = ALL[name]
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


def test_a_constant_index_beyond_an_array_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(HEAD + "void top(Words& in, Words& out) {\n  int few[2] = {1, 2};\n  out.write(few[2]);\n}\n")
    with pytest.raises(OpenHlsError, match=r"program.cpp:6:.*past the end"):
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
    with pytest.raises(OpenHlsError, match=r"software builds get|deleted"):
        compile_program(source, "top")


@pytest.mark.parametrize(
    "body",
    ['  const char* text = "13";\n  out.write(ap_uint<5>(text));\n', '  \n  out.write(ap_uint<5>("1z", 16));\n'],
    ids=["a pointer", "a digit that is none"],
)
def test_a_number_of_an_unknown_text_is_refused(body: str, tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(HEAD + f"void top(Words& out) {{\n{body}}}\n")
    with pytest.raises(OpenHlsError, match=r"program.cpp:6"):
        compile_program(source, "top")
