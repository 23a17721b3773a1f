# SPDX-License-Identifier: Apache-2.0
"""A design's simulation is compiled once for the same text."""

from pathlib import Path

import pytest

from openhls.cosim import check_readable, simulate
from openhls.cosim.driver import build_simulation
from openhls.emit.design import Design
from openhls.pipeline import compile_program, write_design

SOURCE = "int top(int a) { return a + 1; }\n"


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENHLS_CACHE", str(tmp_path / "store"))


def designed(folder: Path, text: str) -> Design:
    folder.mkdir()
    (folder / "top.cpp").write_text(text)
    return write_design(compile_program(folder / "top.cpp", "top"), "top", folder)


def test_a_design_is_built_once_wherever_it_lies(tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the tools, the second time; other hardware and other main functions are built anew."""
    monkeypatch.setattr(simulate, "compile_models", lambda _, program: program.write_text("compiled"))
    first, same = (designed(tmp_path / name, SOURCE) for name in ("first", "same"))
    other = designed(tmp_path / "other", SOURCE.replace("1", "2"))
    built = build_simulation(first)
    check_readable(first)
    simulate.tools()
    monkeypatch.setattr(simulate, "run", lambda command, **_: pytest.fail(f"{command} ran"))
    assert build_simulation(same) == built
    check_readable(same)
    for work in (lambda: build_simulation(other), lambda: check_readable(other), lambda: build_simulation(same, "int")):
        with pytest.raises(pytest.fail.Exception):
            work()
