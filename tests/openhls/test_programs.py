# SPDX-License-Identifier: Apache-2.0
"""Every test program means the same to g++ as in the compiler's interpreter, and as RTL with random stalls."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import differences, run_reference
from program_choices import CHOICES

from openhls.cosim import simulate
from openhls.fuzz.batch import compile_design, simulation
from openhls.pipeline import compile_program

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests/openhls/programs"
ELEMENTS = 256  # behind each pointer
CASES = 30

LARGE = {"arithmetic", "lanes", "memory_order", "memory_stages", "scale", "strides", "two_pass", "vectors"}
SLOW = LARGE | {"fixed", "pieces", "whole_structs"}  # as RTL, these take three times the others' time
ELSEWHERE = {"everything", "nests"}  # compared as RTL in test_sabotage.py and emit/test_nests.py
QUICK = sorted({path.stem for path in PROGRAMS.glob("*.cpp")} - SLOW - ELSEWHERE)
GROUPS = 4  # of programs that are compiled together


@pytest.mark.parametrize("first", range(GROUPS))
def test_programs_are_the_same_in_the_interpreter_and_in_hardware(first: int, tools: None, tmp_path: Path) -> None:
    programs, designs = {}, {}
    for name in QUICK[first::GROUPS]:
        programs[name] = compile_program(PROGRAMS / f"{name}.cpp", name)
        designs[name] = compile_design(programs[name], name, tmp_path / name)
    model = simulation(designs)
    found = {}
    for name, program in programs.items():
        record = recorded(name, program, tmp_path / name)
        problems = differences(program, record)
        for mode in ("stalls", "none", "resets"):
            ran = simulate.run_cases(model, record, mode=mode, patience=5000, model=name)
            problems += [f"{mode}: {ran.problem}"] if ran.problem or not ran.words else []
        if problems:
            found[name] = problems
    assert found == {}


@pytest.mark.parametrize("name", sorted(SLOW | ELSEWHERE))
def test_the_interpreter_agrees_with_gxx(name: str, tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / f"{name}.cpp", name)
    assert differences(program, recorded(name, program, tmp_path)) == []


def recorded(name: str, program, folder: Path) -> Path:
    source = PROGRAMS / f"{name}.cpp"
    return run_reference(program, source, folder, cases=CASES, choices=CHOICES.get(name, ()), elements=ELEMENTS)


KERNELS = {
    "page_filter": ("page_count=0:3", "rows=0:60", "row_bytes=32:128:32,33", "page_bytes=4096,5000"),
    "softmax": ("dense=0:70", "tail=0:40", "masked=0:1"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_mean_the_same_as_to_gxx(name: str, tmp_path: Path) -> None:
    source, includes = ROOT / f"hls/{name}/{name}.cpp", (ROOT / "hls",)
    program = compile_program(source, name, includes)
    chosen = {"choices": KERNELS[name], "includes": includes, "function": f"kvdrive::{name}"}
    assert differences(program, run_reference(program, source, tmp_path, cases=12, **chosen)) == []
