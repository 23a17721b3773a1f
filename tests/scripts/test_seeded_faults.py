"""Seeded faults of a small tree: what is found, what survives, and that the tree is as before."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import seeded_faults as script

SCRIPT = Path(script.__file__)
NUMBERS = """def largest(numbers):
    return max(numbers, default=0)


def total(numbers):
    return sum(numbers)
"""
TESTS = """import os, pathlib, signal
import numbers_of_it as it


def test_largest():
    assert it.largest([1, 3, 2]) == 3


def test_total():
    assert it.total([1]) == 1


def test_compiled():
    assert pathlib.Path("out.txt").read_text() == "fine"


def test_that_is_stopped():
    if it.total([1]) != 1:
        os.kill(os.getppid(), signal.SIGINT)
        signal.pause()
"""
FOUND = ("largest", "max(", "min(", "test_largest")
SURVIVES = ("none", "default=0", "default=1", "test_largest")
BROKEN = ("syntax", "return sum(", "return sum((", "test_total")
STOPPED = ("stopped", "sum(numbers)", "2 * sum(numbers)", "test_that_is_stopped")


def row(name: str, old: str, new: str, test: str, file: str = "numbers_of_it.py") -> str:
    fields = {"name": name, "part": "host", "file": file, "old": old, "new": new, "wrong": "It is wrong."}
    lines = [f'{key} = "{value}"' for key, value in fields.items()]
    return "\n".join(["[[fault]]", *lines, f'tests = ["tests/test_it.py::{test}"]', ""])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository without a table of faults."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "numbers_of_it.py").write_text(NUMBERS)
    (tmp_path / "source.txt").write_text("fine")
    (tmp_path / "out.txt").write_text("fine")
    (tmp_path / "tests/test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / ".gitignore").write_text("out.txt\n")
    return tmp_path


def commit(tree: Path, table: str) -> None:
    (tree / "tests/mutations.toml").write_text(table)
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "A tree"]):
        subprocess.run(["git", *command], cwd=tree, check=True)


def mutations(tree: Path, *options: str) -> tuple[int, str]:
    """Status and output. Few plugins, because they take most of the time."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "GIT_"))}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    command = [sys.executable, str(SCRIPT), "--root", str(tree), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stderr == ""
    assert (tree / "numbers_of_it.py").read_text() == NUMBERS
    assert (tree / "source.txt").read_text() == "fine"
    return done.returncode, done.stdout


def test_what_is_compiled_has_the_fault_and_afterwards_not(tree: Path) -> None:
    build = """[[build]]\nbelow = "source"\ncommand = "cp source.txt out.txt"\n"""
    commit(tree, build + row("text", "fine", "wrong", "test_compiled", "source.txt") + row(*SURVIVES))
    status, output = mutations(tree, "--only", "text")
    assert (status, "text: tests.test_it::test_compiled" in output, "none" in output) == (0, True, False)
    assert (tree / "out.txt").read_text() == "fine"


def test_faults_that_survive_or_break_the_tree_give_1(tree: Path) -> None:
    commit(tree, row(*FOUND) + row(*SURVIVES) + row(*BROKEN))
    status, output = mutations(tree)
    assert status == 1
    assert "largest: tests.test_it::test_largest" in output
    assert "none: survived" in output
    assert "syntax: error: " in output
    assert output.count("NOT FOUND") == 2


def test_an_interrupt_restores_the_file(tree: Path) -> None:
    commit(tree, row(*STOPPED))
    assert mutations(tree)[0] == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (row("twice", "numbers", "it", "test_total"), "twice: its old text stands 4 times in numbers_of_it.py"),
        (row("same", "max(", "max(", "test_total"), "same changes nothing or names no test"),
        (row("gone", "max(", "min(", "test_of_old"), "tests/test_it.py::test_of_old does not run in `make test`"),
        (row("red", "max(", "min(", "test_compiled"), "without a fault, tests.test_it::test_compiled ended as failed"),
    ],
    ids=["text stands twice", "no change", "no such test", "test fails"],
)
def test_tables_that_prove_nothing_are_refused(tree: Path, table: str, sentence: str) -> None:
    (tree / "out.txt").write_text("not fine")
    commit(tree, table)
    status, output = mutations(tree)
    assert (status, sentence in output) == (2, True), output


def test_a_tree_with_changes_is_refused(tree: Path) -> None:
    commit(tree, row(*FOUND))
    (tree / "tests/test_it.py").write_text(TESTS + "\n")
    status, output = mutations(tree)
    assert (status, "commit or stash them" in output) == (2, True)


def test_the_table_of_this_tree_fits_it() -> None:
    """Each old text stands once, each test exists, and all parts of the tree have faults of different names."""
    faults, _ = script.read_table(script.ROOT)
    assert len({fault.name for fault in faults}) == len(faults) >= 20
    parts = Counter(fault.part for fault in faults)
    assert parts.keys() == {"drive", "kernels", "compiler", "host"}
    assert min(parts.values()) >= 5
    for test in {test for fault in faults for test in fault.tests}:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (script.ROOT / file).read_text(), test
