"""What scripts/time_setup.py reads from the output of a command."""

import os
import sys
from pathlib import Path

import time_setup

PROGRAM = """
import sys
print("kvdrive: system packages (build) ... 9 s")
print("\\rkvdrive: native extension ... 1 of 2 files\\rkvdrive: native extension ... 70 s")
print("kvdrive: Python packages to run (torch is large) ... 20 s")
print("the model goes on:", flush=True)
print(" a = 1", flush=True)
print("==== 12 passed, 3 skipped in 4.21s ====")
"""


def test_text_counts_once_the_answer_begins() -> None:
    assert not time_setup.first_text_at("the model goes on")
    assert not time_setup.first_text_at("the model goes on:\n ")
    assert time_setup.first_text_at("question: ?\nthe model goes on:\n x")


def test_steps_text_and_tests_are_read_from_the_output(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = f"{sys.executable} {tmp_path / 'program.py'}"
    found = time_setup.timed(command, "empty", tmp_path, dict(os.environ), tmp_path / "log.txt")
    assert found.status == 0
    assert found.steps == {
        "system packages (build)": 9,
        "native extension": 70,
        "Python packages to run (torch is large)": 20,
    }
    assert found.downloads == 29
    assert found.tests == {"passed": 12, "skipped": 3}
    assert found.first_text is not None
    assert found.first_text <= found.whole
    assert (tmp_path / "log.txt").read_text().count("native extension") == 2


def test_table_has_a_row_for_each_command() -> None:
    run = time_setup.Timing("make run", "empty", whole=250.0, first_text=170.0, steps={"package x": 20})
    test = time_setup.Timing("make test", "warm", whole=400.0, tests={"passed": 6500, "skipped": 2})
    lines = time_setup.table([run, test], (6502, 1000)).splitlines()
    assert lines[2] == "| `make run, to its first text` | empty | 2:30 | 0:20 |  |"
    assert lines[3] == "| `make test` | warm | 6:40 | 0:00 | 6,500 passed, 2 skipped |"
    assert lines[-1].endswith("`make test` selects 6,502 tests, `make test-full` 1,000 more.")
