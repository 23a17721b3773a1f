# SPDX-License-Identifier: Apache-2.0
"""Random programs, as g++ compiles them and as RTL under random stalls."""

from pathlib import Path

import pytest

from openhls.backend import datapath
from openhls.fuzz.batch import run_batch
from openhls.fuzz.generate import random_program, top_name
from openhls.fuzz.run import BATCH, run_seeds, still_fails
from openhls.fuzz.shrink import shrink
from openhls.ir import Opcode

REGRESSIONS = sorted((Path(__file__).parents[1] / "regressions").glob("*.cpp"))
PROGRAMS, QUICK = 200, 100  # of these, so many in `make test`
BATCHES = [pytest.param(first, marks=pytest.mark.slow if first >= QUICK else ()) for first in range(0, PROGRAMS, BATCH)]


@pytest.mark.parametrize("first", BATCHES)
def test_random_programs_are_the_same_in_hardware(first: int, tools: None) -> None:
    verdicts = run_seeds(range(first, first + BATCH))
    assert [verdict for verdict in verdicts if verdict.problem] == []
    assert sum(bool(verdict.refused) for verdict in verdicts) <= 2
    assert sum(verdict.words > 0 for verdict in verdicts) > BATCH * 3 / 4


def test_what_once_failed_is_the_same_in_hardware(tools: None, tmp_path: Path) -> None:
    if not REGRESSIONS:
        pytest.skip("no failing program was kept yet")
    programs = {path.stem: path.read_text() for path in REGRESSIONS}
    assert [verdict for verdict in run_batch(programs, tmp_path / "batch") if verdict.problem] == []


def test_a_text_follows_from_its_seed() -> None:
    assert random_program(7) == random_program(7) != random_program(8)


def test_shrinking_leaves_what_fails() -> None:
    small = shrink(random_program(3), lambda text: ".write(" in text and text.count("{") == text.count("}"))
    assert small.count("\n") == 1
    assert ".write(" in small


def test_a_wrong_compiler_is_caught_and_its_program_kept_small(
    monkeypatch: pytest.MonkeyPatch, tools: None, tmp_path: Path
) -> None:
    right = datapath.expression

    def wrong(opcode: Opcode, *rest: object) -> object:
        return right(Opcode.OR if opcode is Opcode.XOR else opcode, *rest)

    monkeypatch.setattr(datapath, "expression", wrong)
    name = top_name(1)
    text = (
        "#include <ap_int.h>\n#include <hls_stream.h>\n"
        f"int {name}(hls::stream<ap_uint<32> >& in0, int n, ap_int<17> k) {{\n"
        "  ap_uint<32> sum = n;\n"
        "  for (int i = 0; i < n; ++i) {\n    sum += in0.read();\n  }\n"
        "  return (sum ^ k).to_int();\n}\n"
    )
    assert still_fails(name, text)
    small = shrink(text, lambda candidate: still_fails(name, candidate), attempts=6)
    assert "in0.read" not in small
    assert "sum ^ k" in small
