# SPDX-License-Identifier: Apache-2.0
"""`verilator --lint-only -Wall` has nothing to say about what is written, and what is written is what is needed."""

import re
from pathlib import Path

import pytest

from openhls.cosim import simulate
from openhls.emit.design import Design
from openhls.emit.lint import unused_nets
from openhls.emit.netlist import Module, operate
from openhls.ir import Opcode
from openhls.pipeline import compile_program, write_design

PROGRAMS = Path(__file__).parents[1] / "programs"
TOPS = sorted(path.stem for path in PROGRAMS.glob("*.cpp") if path.stem not in ("jobs", "passes"))
PRAGMA = re.compile(r"^\s*// (.*)\n\s*// verilator lint_off (\w+)", re.MULTILINE)


def lint(design: Design) -> None:
    """Verilator itself, without any option that silences it."""
    command = [simulate.verilator(), "--lint-only", "-Wall", "--top-module", design.top]
    simulate.run([*command, *sorted((design.folder / "rtl").glob("*.sv"))])


def written(name: str, folder: Path) -> Design:
    source = folder / f"{name}.cpp"
    source.write_text((PROGRAMS / source.name).read_text())
    return write_design(compile_program(source, name), name, folder / "out")


def test_a_small_design_is_clean(tmp_path: Path) -> None:
    design = written("blend", tmp_path)
    lint(design)
    text = "".join(path.read_text() for path in (design.folder / "rtl").glob("*.sv"))
    assert "lint_off UNUSEDSIGNAL" in text
    assert len(PRAGMA.findall(text)) == text.count("lint_off") == text.count("lint_on")
    assert {len(reason.split()) > 4 for reason, _ in PRAGMA.findall(text)} == {True}


def test_files_are_named_as_seen_from_the_first_one(tmp_path: Path) -> None:
    text = "".join(path.read_text() for path in written("blend", tmp_path).files)
    assert "// blend.cpp:" in text
    assert str(tmp_path) not in text


def test_only_the_part_of_the_library_that_is_used_is_written(tmp_path: Path) -> None:
    design = written("search", tmp_path)
    found = {path.stem for path in (design.folder / "rtl").glob("openhls_*.sv")}
    text = "".join(re.sub(r"//.*", "", path.read_text()) for path in (design.folder / "rtl").glob("*.sv"))
    assert found == {name for name in re.findall(r"^ *(?!module )(openhls_\w+) (?:#\(|\w+ \()", text, re.MULTILINE)}
    assert {"openhls_credit_fifo", "openhls_fifo"} <= found < {path.stem for path in simulate.LIBRARY}


def test_bits_that_nothing_reads_are_found() -> None:
    module = Module("unit")
    whole, part, none = (module.input(name, 8) for name in ("whole", "part", "none"))
    low = operate(Opcode.EXTRACT, part, width=3, low=0)
    module.assign(module.output("result", 11), operate(Opcode.CONCAT, whole, low))
    assert unused_nets(module) == {part, none}


@pytest.mark.slow
@pytest.mark.parametrize("name", TOPS)
def test_all_programs_are_clean(name: str, tmp_path: Path) -> None:
    lint(written(name, tmp_path))
