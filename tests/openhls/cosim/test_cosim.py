# SPDX-License-Identifier: Apache-2.0
"""C++ against RTL, with random inputs and random stalls on every stream."""

from pathlib import Path

import pytest
from program_choices import CHOICES

from openhls.cosim import Cosimulation, cosimulate, parse_choice, parse_elements
from openhls.emit.design import Design
from openhls.errors import OpenHlsError
from openhls.pipeline import compile_program, write_design

ROOT = Path(__file__).parents[3]
PROGRAMS = ROOT / "tests/openhls/programs"
SEED = 1

ELEMENTS = 256  # behind a pointer, where nothing else is said
LARGE = {"arithmetic", "lanes", "memory_order", "memory_stages", "scale", "strides", "two_pass", "vectors"}
SLOW = LARGE | {"fixed", "pieces", "whole_structs"}  # the others are compared in tests/openhls/test_programs.py

KERNELS = {
    "page_filter": (
        *("page_filter", "page_count=0:3", "rows=0:300"),
        *("row_bytes=32,64,96:160:32,512", "page_bytes=4096,4096,4096,8192,5"),
    ),
    "softmax": ("softmax", "dense=0:60", "tail=0:20", "masked=0:1"),
    "gemv": ("gemv_g1", "mode=0:2", "width=32:128:32,32,17", "tokens=1:40"),
}


def compared(
    source: Path, top: str, out: Path, choices: tuple[str, ...], cases: int, sizes: tuple[str, ...] = ()
) -> tuple[Design, Cosimulation]:
    includes = (ROOT / "hls",) if source.is_relative_to(ROOT / "hls") else ()
    program = compile_program(source, top, includes)
    design = write_design(program, top, out)
    sets = dict(parse_choice(text) for text in choices)
    elements = {port.name: ELEMENTS for port in program.memories} | dict(parse_elements(text) for text in sizes)
    found = cosimulate(
        design,
        source,
        program.function,
        cases=cases,
        seed=SEED,
        includes=includes,
        choices=sets,
        elements=elements,
        patience=5000,
    )
    return design, found


BEYOND = """#include <ap_int.h>
#include <hls_stream.h>
void top(hls::stream<ap_uint<8>>& in, int n, hls::stream<ap_uint<8>>& out) {
  ap_uint<8> words[16];
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    words[i] = in.read();
  }
  for (int i = 0; i < n; ++i) out.write(words[i]);
}
"""


def test_an_index_beyond_its_array_stops_the_simulation(tools: None, tmp_path: Path) -> None:
    source = tmp_path / "top.cpp"
    source.write_text(BEYOND)
    _, beyond = compared(source, "top", tmp_path, ("n=17",), 1)
    assert "top.cpp:7: an index beyond words" in beyond.problem


ENDLESS = """#include <ap_int.h>
#include <hls_stream.h>
void top(hls::stream<ap_uint<60>>& in, hls::stream<ap_uint<60>> more[2], hls::stream<ap_uint<60>>& out) {
  while (SOURCE.read() != 0x123456789abcdef) {
  }
  out.write(in.read() + more[0].read() + more[1].read());
}
"""


@pytest.mark.parametrize("stream", ["in", "more[1]"])
def test_a_top_that_reads_for_ever_is_stopped(stream: str, tools: None, tmp_path: Path) -> None:
    source = tmp_path / "top.cpp"
    source.write_text(ENDLESS.replace("SOURCE", stream))
    with pytest.raises(OpenHlsError, match="two million words were read"):
        compared(source, "top", tmp_path, (), 1)


MIXED = """#include <ap_int.h>
#include <hls_stream.h>
void top(hls::stream<ap_uint<8>> both[2]) {
  both[1].write(both[0].read());
}
"""


def test_an_array_with_inputs_and_outputs_is_refused(tools: None, tmp_path: Path) -> None:
    source = tmp_path / "top.cpp"
    source.write_text(MIXED)
    with pytest.raises(OpenHlsError, match="some streams of both are read and others written"):
        compared(source, "top", tmp_path, (), 1)


def check(name: str, out: Path) -> None:
    _, found = compared(PROGRAMS / f"{name}.cpp", name, out, CHOICES.get(name, ()), 30)
    assert found.problem == ""
    assert found.free.words > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SLOW))
def test_a_large_program_is_the_same_in_hardware(name: str, tools: None, tmp_path: Path) -> None:
    check(name, tmp_path)


def test_page_filter_is_the_same_in_hardware_at_a_beat_per_cycle(tools: None, tmp_path: Path) -> None:
    top, *choices = KERNELS["page_filter"]
    design, found = compared(ROOT / "hls/page_filter/page_filter.cpp", top, tmp_path, tuple(choices), 30)
    assert found.problem == ""
    intervals = {region.label: region.interval for region in design.regions if region.wish}
    assert intervals == {"split": 1, "mark": 1, "compact": 1}
    assert all(region.met for region in design.regions)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "gemv"])
def test_a_kernel_is_the_same_in_hardware(name: str, tools: None, tmp_path: Path) -> None:
    top, *choices = KERNELS[name]
    design, found = compared(ROOT / f"hls/{name}/{name}.cpp", top, tmp_path, tuple(choices), 40)
    assert found.problem == ""
    assert [region.label for region in design.regions if region.wish and region.interval != region.wish] == []


def test_an_access_outside_a_buffer_is_an_error(tools: None, tmp_path: Path) -> None:
    choices = ("rows=8", "columns=32", "weight=1", "skip=0")
    with pytest.raises(OpenHlsError, match=r"heap-buffer-overflow[^$]*blend.cpp:"):
        compared(PROGRAMS / "blend.cpp", "blend", tmp_path, choices, 1, ("mixed=255",))


@pytest.mark.slow
def test_argtopk_is_the_same_in_hardware(tools: None, tmp_path: Path) -> None:
    choices = ("n=1:900,2000", "k=1:64,65:400", "key_type=0:1")
    sizes = ("keys=128", "indices=32", "bitmap=8")
    _, found = compared(ROOT / "hls/argtopk/argtopk.cpp", "argtopk", tmp_path, choices, 60, sizes)
    assert found.problem == ""
    assert found.free.words > 60 * 100
