# SPDX-License-Identifier: Apache-2.0
"""Readers of the RTL find the names of their C++ in it, and none that LLVM made up."""

import re
from pathlib import Path

import pytest

from openhls.frontend.toolchain import compile_source
from openhls.ir import Block, Const, Opcode, Operation, Process, Value, operations_of
from openhls.names import cpp_name
from openhls.passes.naming import name_values, variable_of
from openhls.pipeline import compile_program, finish_program, write_design
from openhls.schedule.target import target_of

PROGRAMS = Path(__file__).parents[1] / "programs"
SOURCE = """
#include <ap_int.h>
#include <hls_stream.h>
struct Best { bool any; ap_int<16> score; };
void named(hls::stream<ap_int<16>>& samples, hls::stream<ap_int<16>>& kept, int count, int& seen) {
  Best best = {false, 0};
  int above = 0;
keep:
  for (int place = 0; place < count; ++place) {
#pragma HLS PIPELINE II = 1
    const ap_int<16> sample = samples.read();
    const bool is_better = !best.any || sample > best.score;
    if (is_better) best.score = sample;
    best.any = best.any || sample > 0;
    above += is_better ? 3 * sample.to_int() : 1;
    kept.write(best.score);
  }
  seen = above;
}
"""


@pytest.fixture
def nets(tmp_path: Path) -> dict[str, str]:
    """The notes of the nets in the RTL of SOURCE, by their names."""
    source = tmp_path / "named.cpp"
    source.write_text(SOURCE)
    write_design(compile_program(source, "named"), "named", tmp_path / "out")
    return declared((tmp_path / "out/rtl/named_process.sv").read_text())


def declared(text: str) -> dict[str, str]:
    return dict(re.findall(r"^  logic (?:\[\d+:0\] )?(\w+);(.*)$", text, re.MULTILINE))


def test_nets_have_the_names_of_variables_and_fields(nets: dict[str, str]) -> None:
    for name in ("place", "above", "sample", "is_better", "best_any", "best_score"):
        assert name in nets, name
    assert nets["sample"] == "  // named.cpp:11"


def test_steps_are_named_after_what_they_lead_to_and_their_line(nets: dict[str, str]) -> None:
    steps = {name: note for name, note in nets.items() if re.search(r"_l\d+(_\d+)?$", name)}
    assert {"above_l15", "repeat_keep_l9"} <= set(steps)
    for name, note in steps.items():
        line = re.search(r"_l(\d+)", name)
        assert line
        assert note in ("", f"  // named.cpp:{line[1]}"), name


@pytest.mark.parametrize("name", ["blend", "tables"])
def test_no_name_that_llvm_made_up_is_left(name: str, tmp_path: Path) -> None:
    source = PROGRAMS / f"{name}.cpp"
    made = set(re.findall(r"^  %([\w.]+) = ", compile_source(source, name).text, re.MULTILINE))
    written = set(re.findall(r"\w+", source.read_text()))
    invented = {each.replace(".", "_") for each in made} - written
    assert len(invented) > 3
    design = write_design(compile_program(source, name), name, tmp_path)
    for file in design.files:
        found = {re.sub(r"(_(step\d+|stage\d+|kept|\d+))+$", "", net) for net in declared(file.read_text())}
        assert not found & invented, file.name


def test_all_values_get_names_of_their_own() -> None:
    program = finish_program(compile_program(PROGRAMS / "nests.cpp", "nests"), target_of())
    for process in program.processes.values():
        names = [op.result.name for op in operations_of(process.body) if op.result is not None]
        assert len(set(names)) == len(names) > 5
        assert all(name.isidentifier() for name in names)


def test_values_without_cpp_keep_their_names() -> None:
    add = Operation(Opcode.ADD, Value("total", 8), (Value("a", 8), Const(8, 1)))
    process = Process("plain", (Value("a", 8),), (), (), (Block("block", (add,)),), (("result", Value("total", 8)),))
    assert name_values(process) is process


def test_numbers_count_only_behind_names_of_variables() -> None:
    variables = {"add": "sum", "score": "score", "lanes_3": "lanes_3"}
    cases = {"add": "sum", "add.w2": "sum", "row.start.score": "score", "score_2": "score", "lanes_3_1": "lanes_3"}
    assert {value: variable_of(value, variables) for value in cases} == cases
    assert variable_of("add_3", variables) == variable_of("lanes", variables) == ""


@pytest.mark.parametrize(
    ("linker_name", "name"),
    [
        ("_ZN7kvdrive3abiL7kExp2C0E", "kExp2C0"),
        ("_ZZ4sinevE5table", "table"),
        ("_Z5pieceILi16EEvi", "piece"),
        ("plain", "plain"),
    ],
)
def test_a_digit_in_a_name_is_no_length(linker_name: str, name: str) -> None:
    assert cpp_name(linker_name) == name
