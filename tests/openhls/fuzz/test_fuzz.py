# SPDX-License-Identifier: Apache-2.0
"""Random programs, as g++ compiles them and as RTL under random stalls."""

import functools
import re
from pathlib import Path

import pytest

from openhls.emit import datapath
from openhls.fuzz.batch import refusal, run_batch
from openhls.fuzz.generate import ADDRESSES, STREAMS, random_program, top_name
from openhls.fuzz.run import BATCH, run_seeds, still_fails
from openhls.fuzz.shrink import shrink
from openhls.ir import Opcode

REGRESSIONS = sorted((Path(__file__).parents[1] / "regressions").glob("*.cpp"))
PROGRAMS, QUICK = 200, 10  # of each kind; so many of these in `make test`
FIRSTS = (0, STREAMS, ADDRESSES)
OTHERS = [
    pytest.param(range(at, min(at + BATCH, start + PROGRAMS)), marks=pytest.mark.slow, id=str(at))
    for start in FIRSTS
    for at in range(start + QUICK, start + PROGRAMS, BATCH)
]
BATCHES = [*(pytest.param(range(start, start + QUICK), id=str(start)) for start in FIRSTS), *OTHERS]


@pytest.mark.parametrize("seeds", BATCHES)
def test_random_programs_are_the_same_in_hardware(seeds: range, tools: None) -> None:
    verdicts = run_seeds(seeds)
    assert [verdict for verdict in verdicts if verdict.problem] == []
    assert sum(bool(verdict.refused) for verdict in verdicts) <= (4 if ADDRESSES > seeds[0] >= STREAMS else 2)
    assert sum(verdict.words > 0 for verdict in verdicts) > len(seeds) * 3 / 4


def test_what_once_failed_is_the_same_in_hardware(tools: None, tmp_path: Path) -> None:
    if not REGRESSIONS:
        pytest.skip("no failing program was kept yet")
    programs = {path.stem: path.read_text() for path in REGRESSIONS}
    assert [verdict for verdict in run_batch(programs, tmp_path / "batch") if verdict.problem] == []


# What random programs must have, as the text of one of them shows it.
RULES = {
    "bits of numbers in a concatenation": r"\.range\(\d+, \d+\), ",
    "a concatenation that is assigned": r"^ *\([\w.]+, [\w.]+\) = ",
    "some bits that are assigned": r"^ *[\w.]+\.range\(\d+, \d+\) = ",
    "numbers of one width and of different signs": r"ap_uint<63>\(.*\) (<|==) ap_int<63>\(",
    "fixed-point numbers": r"AP_RND_CONV, AP_SAT_SYM>",
    "side channels": r"ap_axiu<\d+, \d+, \d+, \d+>",
    "signed data with side channels": r"ap_axis<\d+, \d+, \d+, \d+>",
    "fields of structs": r"\]\.high = ",
    "copies of structs": r"(p\d)\[.*\] = \1\[",
    "structs in memory": r"const fuzzed_\d+_record\* mem_in",
    "structs that are stored field by field": r"\.one = .*\n.*\.two = .*\n.*\.three = ",
    "copies of structs in memory": r"auto one = mem_in",
    "memory of odd widths": r"ap_int<6>\* mem_in",
    "memory of wide words": r"ap_u?int<512>\* mem_in",
    "volatile memory": r"volatile \w+\* mem_out",
    "rows in memory": r"mem_out\[i\d+ \* 8 \+ i\d+\]",
    "rows in memories of their own": r"ARRAY_PARTITION variable = m\d+ dim = 1 complete",
    "numbers side by side": r"ARRAY_RESHAPE variable = a\d+ cyclic",
    "static numbers": r"^ *static ap_u?int<\d+> \w+ = ",
    "static arrays": r"^ *static ap_u?int<\d+> \w+\[\d+\] = ",
    "two reads of an array in an iteration": r"write\(ap_uint<32>\((\w+)\[.*\) \^ ap_uint<32>\(\1\[",
    "static streams": r"static hls::stream",
    "arrays between stages": r"^  ap_uint<32> link\d\[16\];",
    "memory in stages": r"_stage0\(const ap_uint<32>\* in0",
    "regions in a loop": r"_region\(in0, out0, n, k\);",
    "regions in a loop with values that change": r"_region\(in0, out0, n, k \+ run\);",
    "arrays between stages in a loop": r"_region\(.*\n.*DATAFLOW\n  ap_uint<32> link",
    "arrays as arguments": r"table\[16\]",
    "arrays of streams": r"> lanes\[2\]",
    "a pointer to a number": r"int\* given",
    "a reference": r"ap_int<20>& total",
    "names that are keywords": r"& logic, ",
    "pragmas without an effect": r"HLS ALLOCATION",
    "loops without braces": r"\)\n#pragma HLS PIPELINE\n",
    "loops with an iteration at least": r"\} while \(",
}
RULES_OF_STREAMS = {
    "a stream of an iteration": r"for \(.*\) \{\n(?:#.*\n)?    hls::stream",
    "a stream of a branch": r"if \(.*\{\n    hls::stream",
    "a stream in a function of its own": r"_fill\(in0, q\d",
    "a depth of a pragma": r"STREAM variable = q\d",
    "a delay line": r"if \(i\d+ >= \d\) out0.write",
    "an array of streams": r"hls::stream<.*> q\d+\[\d\];",
    "words that are read until none is left": r"while \(!q\d+\.empty\(\)\)",
    "static streams": r"static hls::stream<\w+> s\d",
    "stages with streams of their own": r"_a\(in0, between, n\);",
    "inlined stages": r"\{\n#pragma HLS INLINE\n",
    "a region in a stage": r"_stage\d\(.*\n#pragma HLS DATAFLOW\n  hls::stream<int, \d> between",
    "words that stay until the next run": r"^  hls::stream<int, 64> last;",
    "words that stay until the next call": r"static hls::stream<int, 64> last;",
}
RULES_OF_ADDRESSES = {
    "a pointer that a condition chooses": r"\* p\d+ = \(\(.* \? a\d+ : a\d+\);",
    "a pointer that an iteration hands to the next": r"^    p\d+ = ",
    "pointers that are swapped": r"auto\* const kept = p\d+;",
    "pointers in an array": r"\* table\d+\[2\] = ",
    "pointers in an array that change": r"^ +table\d+\[ap_uint<1>.*\] = ",
    "a cursor that goes around": r"(c\d+) = \1 \+ 1 == (a\d+) \+ \d+ \? \2 : \1 \+ 1;",
    "differences": r"int\(c\d+ - c\d+\)",
    "orders": r"\(c\d+ (<|>=) c\d+\)",
    "loops over pointers": r"; w\d+ != a\d+ \+ \d+; \+\+w",
    "loops over pointers backwards": r"; w\d+ > a\d+; --w",
    "loops over pointers that end early": r"if \(\*w\d+ == .*\) break;",
    "static arrays": r"static ap_u?int<\d+> a\d+\[",
}


@functools.cache
def first_programs() -> str:
    return "\n".join(random_program(seed) for seed in range(600))


@functools.cache
def first_stream_programs() -> str:
    return "\n".join(random_program(seed) for seed in range(STREAMS, STREAMS + 300))


@pytest.mark.parametrize("rule", RULES_OF_STREAMS)
def test_random_programs_about_streams_have(rule: str) -> None:
    assert re.search(RULES_OF_STREAMS[rule], first_stream_programs(), re.MULTILINE)


@functools.cache
def first_address_programs() -> str:
    return "\n".join(random_program(seed) for seed in range(ADDRESSES, ADDRESSES + 300))


@pytest.mark.parametrize("rule", RULES_OF_ADDRESSES)
def test_random_programs_about_addresses_have(rule: str) -> None:
    assert re.search(RULES_OF_ADDRESSES[rule], first_address_programs(), re.MULTILINE)


@pytest.mark.parametrize("rule", RULES)
def test_random_programs_have(rule: str) -> None:
    assert re.search(RULES[rule], first_programs(), re.MULTILINE)


def test_a_refusal_has_to_name_a_line_and_no_linker_name() -> None:
    assert refusal("fuzzed_1", "fuzzed_1.cpp:3: a loop; write none").refused
    assert refusal("fuzzed_1", "a loop; write none").problem
    assert refusal("fuzzed_1", "fuzzed_1.cpp:3: a call of _ZN3hls1fEv; write none").problem


def test_a_text_follows_from_its_seed() -> None:
    assert random_program(7) == random_program(7) != random_program(8)


def test_shrinking_leaves_what_fails() -> None:
    small = shrink(random_program(3), lambda text: ".write(" in text and text.count("{") == text.count("}"))
    assert small.count("\n") == 1
    assert ".write(" in small


@pytest.fixture
def wrong_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes XOR for OR."""
    right = datapath.expression

    def wrong(opcode: Opcode, *rest: object) -> object:
        return right(Opcode.OR if opcode is Opcode.XOR else opcode, *rest)

    monkeypatch.setattr(datapath, "expression", wrong)


NAME = top_name(1)
WITH_XOR = (
    "#include <ap_int.h>\n#include <hls_stream.h>\n"
    f"int {NAME}(hls::stream<ap_uint<32> >& in0, int n, ap_int<17> k) {{\n"
    "  ap_uint<32> sum = n;\n"
    "  for (int i = 0; i < n; ++i) {\n    sum += in0.read();\n  }\n"
    "  return (sum ^ k).to_int();\n}\n"
)


def test_a_wrong_compiler_is_caught(wrong_compiler: None, tools: None) -> None:
    assert still_fails(NAME, WITH_XOR)


@pytest.mark.slow
def test_the_program_that_shows_a_wrong_compiler_is_kept_small(wrong_compiler: None, tools: None) -> None:
    small = shrink(WITH_XOR, lambda candidate: still_fails(NAME, candidate), attempts=6)
    assert "in0.read" not in small
    assert "sum ^ k" in small
