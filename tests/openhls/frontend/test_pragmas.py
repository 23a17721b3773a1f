# SPDX-License-Identifier: Apache-2.0
"""Pragmas where people write them, what has no effect, and loops of memory and arrays that reach II = 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from openhls.emit.design import Design
from openhls.errors import OpenHlsError, Unsupported
from openhls.frontend.directives import make_directive, read_tcl
from openhls.frontend.interfaces import MODES, SIMILAR
from openhls.ir import Partition, loops_of
from openhls.pipeline import compile_program, write_design

HEAD = """#include <ap_int.h>
#include <hls_stream.h>
using Words = hls::stream<ap_uint<32>>;
"""

# The fifth line of a program, in its top, and the words of the warning about it. No result depends on any of them.
WARNED = {
    "stable": ("#pragma HLS STABLE variable = out", "the pragma STABLE has no effect"),
    "allocation": (
        "#pragma HLS ALLOCATION operation instances = mul limit = 1",
        "the pragma ALLOCATION has no effect",
    ),
    "latency": ("#pragma HLS LATENCY min = 1 max = 4", "the pragma LATENCY has no effect"),
    "operator": ("#pragma HLS BIND_OP variable = n op = mul", "the pragma BIND_OP has no effect"),
    "function": ("#pragma HLS PIPELINE II = 1", "PIPELINE of a function unrolls its loops; its calls do not overlap"),
    "trips": ("#pragma HLS LOOP_TRIPCOUNT max = 3", "LOOP_TRIPCOUNT outside a loop has no effect"),
    "flatten": ("#pragma HLS LOOP_FLATTEN off", "LOOP_FLATTEN off has no effect"),
    "option": ("#pragma HLS INTERFACE s_axilite port = n channel = 3", "INTERFACE option channel has no effect"),
    "condition": (
        "#pragma HLS if (words > 2) PIPELINE",
        "the condition (words > 2) is not known here: the pragma has no effect",
    ),
    "unknown part": ("#pragma HLS INLINE of", "INLINE with of, which is not known: it has no effect"),
    "register": ("#pragma HLS INTERFACE port = n register", "INTERFACE register has no effect"),
    "mode": ("#pragma HLS INTERFACE ap_vld port = n", "INTERFACE mode ap_vld is taken as ap_none"),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_has_no_effect_is_a_warning_and_strictly_an_error(name: str, tmp_path: Path) -> None:
    line, words = WARNED[name]
    source = tmp_path / "program.cpp"
    source.write_text(f"{HEAD}void top(Words& in, Words& out, int n) {{\n{line}\n  out.write(in.read() * n);\n}}\n")
    assert compile_program(source, "top").warnings == (f"{source}:5: warning: {words}",)
    with pytest.raises(Unsupported, match=r"program.cpp:5: .*leave it out, or compile without --strict"):
        compile_program(source, "top", strict=True)


@pytest.mark.parametrize(
    ("pragma", "part"),
    [
        ("STREAM variable = between dept = 4", "dept"),
        ("STREAM variable = between depth = 4 deep", "deep"),
        ("INTERFACE s_axilite port = n bundel = control", "bundel"),
    ],
)
def test_an_unknown_part_of_a_pragma_with_an_effect_is_refused(pragma: str, part: str, tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    body = f"  Words between;\n#pragma HLS {pragma}\n  between.write(in.read());\n  out.write(between.read() * n);\n"
    source.write_text(f"{HEAD}void top(Words& in, Words& out, int n) {{\n{body}}}\n")
    with pytest.raises(Unsupported, match=rf"program.cpp:6: .* with {part}, which is not known"):
        compile_program(source, "top")


def test_a_dependence_of_what_is_no_array_is_a_warning(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    pragma = "#pragma HLS DEPENDENCE variable = sum inter false"
    loop = f"for (int i = 0; i < n; ++i) {{\n{pragma}\n    sum += in.read();\n  }}"
    top = f"void top(Words& in, Words& out, int n) {{\n  int sum = 0;\n  {loop}\n  out.write(sum);\n}}\n"
    source.write_text(HEAD + top)
    words = "DEPENDENCE has no effect: no loop accesses its variable as an array"
    assert compile_program(source, "top").warnings == (f"{source}:7: warning: {words}",)


def built(text: str, folder: Path) -> Design:
    source = folder / "program.cpp"
    source.write_text(HEAD + text)
    return write_design(compile_program(source, "top", strict=True), "top", folder)


def test_a_loop_whose_count_varies_stays_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    loop = "  for (int i = 0; i < n; ++i) {\n#pragma HLS UNROLL\n    out.write(in.read());\n  }\n"
    source.write_text(f"{HEAD}void top(Words& in, Words& out, int n) {{\n{loop}}}\n")
    (warning,) = compile_program(source, "top").warnings
    assert warning.startswith(f"{source}:5: warning: UNROLL has no effect")


def test_banks_that_need_a_division_are_one_memory(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    pragma = "#pragma HLS ARRAY_PARTITION variable = a cyclic factor = 3\n"
    source.write_text(f"{HEAD}void top(Words& in, int a[12], int n) {{\n{pragma}  a[n] = in.read();\n}}\n")
    (warning,) = compile_program(source, "top").warnings
    assert warning == f"{source}:5: warning: ARRAY_PARTITION has no effect: use a power of two as factor"


DIRECTIVES = """open_project demo
set_directive_pipeline -II 2 "top/rows"
set_directive_array_partition -type cyclic -factor 2 "top" table
set_directive_interface -mode m_axi -bundle far "top" data
"""


def test_directives_of_a_tcl_file_are_pragmas(tmp_path: Path) -> None:
    source, script = tmp_path / "program.cpp", tmp_path / "directives.tcl"
    body = "rows:\n  for (int i = 0; i < 8; ++i) data[i] = table[i] + n;\n"
    source.write_text(f"void top(const int table[8], int* data, int n) {{\n{body}}}\n")
    script.write_text(DIRECTIVES)
    program = compile_program(source, "top", directives=read_tcl(script))
    (port,) = program.memories
    assert (port.name, port.bundle) == ("data", "far")
    (table,) = program.processes["top"].arrays
    assert (table.partition, table.factor) == (Partition.CYCLIC, 2)
    (loop,) = loops_of(program.processes["top"].body)
    assert loop.pipeline.interval == 2
    script.write_text('set_directive_pipeline "top/columns"\n')
    with pytest.raises(OpenHlsError, match="there is no top/columns"):
        compile_program(source, "top", directives=read_tcl(script))


@pytest.mark.parametrize("mode", [*MODES, *SIMILAR])
def test_a_directive_names_a_mode_as_a_pragma_does(mode: str) -> None:
    assert make_directive("interface", "top", [mode, "data"]).text == f"interface mode={mode} port=data"


def test_flags_of_tcl_commands_take_no_value(tmp_path: Path) -> None:
    script = tmp_path / "directives.tcl"
    script.write_text(
        'set_directive_pipeline -enable_flush "top/rows"\n'
        "set_directive_dataflow -disable_start_propagation top\n"
        "set_directive_unroll -skip_exit_check -factor 2 top/rows\n"
    )
    assert [(each.place, each.text) for each in read_tcl(script)] == [
        ("top/rows", "pipeline enable_flush"),
        ("top", "dataflow disable_start_propagation"),
        ("top/rows", "unroll skip_exit_check factor=2"),
    ]


def test_the_kernel_flow_puts_pointers_into_memory_and_scalars_into_registers(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text("void top(const int in[8], int* out, int n) {\n  *out = in[n & 7];\n}\n")
    plain, kernel = compile_program(source, "top"), compile_program(source, "top", flow="vitis")
    assert ([port.argument for port in plain.ports], plain.memories, plain.registers) == (["in"], (), ())
    assert [(port.name, port.bundle) for port in kernel.memories] == [("in", "gmem"), ("out", "gmem")]
    assert kernel.registers == ("in", "out", "n", "return")


# The body of a top, and the interval that its loop must have.
LOOPS = {
    "without braces": (
        """
  for (int i = 0; i < n; ++i)
#pragma HLS PIPELINE II = 1
    out.write(in.read());
""",
        1,
    ),
    "trips by a constant": (
        """
  const int kTrips = 16;
  for (int i = 0; i < n; ++i) {
#pragma HLS LOOP_TRIPCOUNT min = kTrips/2 max = kTrips
    out.write(in.read());
  }
""",
        1,
    ),
    "interval by a macro": (
        """
#define TWO (1 << 1)
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = TWO
    out.write(in.read());
  }
""",
        2,
    ),
    "in a branch": (
        """
  for (int i = 0; i < n; ++i) {
    if (n > 3) {
#pragma HLS PIPELINE II = 3
      out.write(in.read());
    }
  }
""",
        3,
    ),
    "around a loop": (
        """
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 4
    int s = 0;
    for (int j = 0; j < 4; ++j) s += in.read();
    out.write(s);
  }
""",
        4,
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_pragmas_where_people_write_them(name: str, tmp_path: Path) -> None:
    body, interval = LOOPS[name]
    design = built(f"void top(Words& in, Words& out, int n) {{{body}}}\n", tmp_path)
    assert [region.interval for region in design.regions if region.interval] == [interval]


def test_trips_by_a_constant_are_in_the_report(tmp_path: Path) -> None:
    body, _ = LOOPS["trips by a constant"]
    design = built(f"void top(Words& in, Words& out, int n) {{{body}}}\n", tmp_path)
    assert [region.trips for region in design.regions if region.interval] == [(8, 16)]


# Clang writes i * 16 + j as i * 16 | j.
REACHED = {
    "rows of a power of two": """
void top(int* c) {
#pragma HLS INTERFACE m_axi port = c
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) {
#pragma HLS PIPELINE II = 1
      c[i * 16 + j] = i ^ j;
    }
}
""",
    "volatile memory": """
void top(volatile int* c, int n) {
#pragma HLS INTERFACE m_axi port = c
  for (int i = 0; i < n; i++) {
#pragma HLS PIPELINE II = 1
    c[i] = i;
  }
}
""",
    "an element that the iteration before may have changed": """
void top(hls::stream<unsigned char>& in, Words& out, int n) {
  int bins[256];
  for (int i = 0; i < 256; i++) bins[i] = 0;
  for (int i = 0; i < n; i++) {
#pragma HLS PIPELINE II = 1
    bins[in.read()] += i;
  }
  for (int i = 0; i < 256; i++) out.write(bins[i]);
}
""",
    "as many words as there are in time": """
void top(Words& in, Words& out, int n) {
  int got = 0;
  while (got < n) {
#pragma HLS PIPELINE II = 1
    ap_uint<32> word;
    if (in.read_nb(word)) {
      out.write(word * 5);
      got++;
    }
  }
}
""",
    "an array that is partitioned by rows": """
void top(hls::stream<short>& in, Words& out) {
  short b[4][64];
#pragma HLS ARRAY_PARTITION variable = b dim = 1 complete
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 64; j++) {
#pragma HLS PIPELINE II = 1
      b[i][j] = in.read();
    }
  for (int j = 0; j < 64; j++) {
#pragma HLS PIPELINE II = 1
    out.write(b[0][j] + b[1][j] + b[2][j] + b[3][j]);
  }
}
""",
}


@pytest.mark.parametrize("name", REACHED)
def test_an_interval_of_one_is_reached(name: str, tmp_path: Path) -> None:
    assert {region.interval for region in built(REACHED[name], tmp_path).regions if region.wish} == {1}


def test_an_access_that_leaves_its_row_stops_a_simulation(tmp_path: Path) -> None:
    design = built(REACHED["an array that is partitioned by rows"].replace("b[3][j]", "b[3][j + 1]"), tmp_path)
    text = "".join(file.read_text() for file in design.files)
    assert [f"an index beyond row {row} of b" in text for row in range(4)] == [True] * 4


def test_an_argument_may_be_called_in(tmp_path: Path) -> None:
    design = built("void top(Words& in, int out, int& o) {\n  o = in.read() + out;\n}\n", tmp_path)
    assert design.arguments == ("in", "out", "o")
    assert "in_tdata" in (tmp_path / "rtl/top.sv").read_text()


def test_pipeline_off_around_a_loop_says_what_is_done_anyway(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(
        f"{HEAD}void top(Words& in, Words& out, int n) {{\n  for (int i = 0; i < n; ++i) {{\n#pragma HLS PIPELINE off\n"
        "    for (int j = 0; j < i; ++j) out.write(in.read());\n  }\n}\n"
    )
    program = compile_program(source, "top", strict=True)
    assert [loop.pipeline.off for loop in loops_of(program.processes["top"].body)] == [True, False]
