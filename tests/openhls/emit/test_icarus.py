# SPDX-License-Identifier: Apache-2.0
"""Small programs in Icarus Verilog: no X reaches a handshake, a stream or an output."""

import shutil
from pathlib import Path

import pytest
from icarus import run_icarus
from program_choices import CHOICES

from openhls.cosim import build_reference, parse_choice, simulate
from openhls.emit.design import Design
from openhls.errors import OpenHlsError
from openhls.pipeline import compile_program, write_design

PROGRAMS = Path(__file__).parents[1] / "programs"


def recorded(name: str, out: Path) -> tuple[Design, Path]:
    if shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog is missing: apt install iverilog")
    source = PROGRAMS / f"{name}.cpp"
    program = compile_program(source, name, ())
    design = write_design(program, name, out)
    choices = dict(parse_choice(text) for text in CHOICES[name])
    reference = build_reference(design, source, program.function, (), choices)
    simulate.run([reference, "12", "1", out / "cases.bin"])
    return design, out / "cases.bin"


@pytest.mark.parametrize("name", ["everything", "passes", "stages"])
def test_no_unknown_value_leaves_a_program(name: str, tmp_path: Path) -> None:
    assert run_icarus(*recorded(name, tmp_path)) > 50


def test_a_missing_reset_is_seen(tmp_path: Path) -> None:
    design, record = recorded("stages", tmp_path)
    fifo = next(path for path in design.library if path.stem == "openhls_fifo")
    text = fifo.read_text()
    broken = text.replace("held <= '0;", "")
    assert broken != text
    fifo.write_text(broken)
    with pytest.raises(OpenHlsError, match="failed"):
        run_icarus(design, record)


def test_a_wrong_value_is_seen(tmp_path: Path) -> None:
    design, record = recorded("stages", tmp_path)
    change = next(path for path in design.files if path.stem == "give_process")
    text = change.read_text()
    assert " + " in text
    change.write_text(text.replace(" + ", " - "))
    with pytest.raises(OpenHlsError, match="failed"):
        run_icarus(design, record)
