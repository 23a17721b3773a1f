"""Files of tests that passed before are left out, until something changes that they depend on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from imports import closure
from inputs import TABLE, Table
from passed import RECORD, load

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT / "tests/shared"
CONFTEST = f"""
import sys
sys.path[:0] = [{str(SHARED)!r}, "sim"]
pytest_plugins = ["passed"]
"""
SETTINGS = """
[pytest]
testpaths = tests
markers = slow
"""
TWO = """
covered = ["tests/even", "tests/odd"]
always = ["tests/odd/test_always.py"]
[[inputs]]
when = ["tests"]
files = ["pytest.ini"]
tools = []
packages = []
[[inputs]]
when = ["tests/even"]
files = ["source"]
tools = ["sh -c 'echo 1'"]
packages = ["pytest"]
"""
TESTS = """
import pytest
from pathlib import Path

def test_one(): pass

def test_source(): assert "fault" not in Path("source/two.txt").read_text()

@pytest.mark.slow
def test_slow(): pass
"""
ODD = """
import pytest

def test_one():
    from machine.door import wheel
    wheel()

@pytest.mark.slow
def test_slow(): pass
"""
FILES = {
    "pytest.ini": SETTINGS,
    "tests/conftest.py": CONFTEST,
    str(TABLE): TWO,
    "source/two.txt": "2",
    "sim/machine/__init__.py": "",
    "sim/machine/door.py": "import machine.inside\nwheel = machine.inside.wheel",
    "sim/machine/inside.py": "def wheel(): pass",
    "sim/machine/other.py": "",
    "tests/even/test_even.py": TESTS,
    "tests/odd/test_odd.py": ODD,
    "tests/odd/test_always.py": "def test_a(): 1",
    "tests/test_rest.py": "def test_a(): 1",
}
EVEN, ODDS = "tests/even/test_even.py", "tests/odd/test_odd.py"
ALWAYS = {"test_rest", "test_always"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two covered files with a slow test each, and two that always run."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(tree: Path, *options: str) -> tuple[set[str], str]:
    """The files whose tests passed, and what pytest prints."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "xdist.plugin"]
    given = ["--leave-out-passed", "--store-passed", "-m", "not slow", *options]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run([*command, *given], cwd=tree, env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if "PASSED" in line]
    return {Path(word.split("::")[0]).stem for line in lines for word in line.split() if "::" in word}, done.stdout


WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "two workers"])


@WORKERS
def test_a_file_that_passed_is_left_out(tree: Path, workers: tuple[str, ...]) -> None:
    assert run(tree, *workers)[0] == {"test_even", "test_odd", *ALWAYS}
    assert set(load(tree)) == {EVEN, ODDS}
    ran, said = run(tree, *workers)
    assert ran == ALWAYS
    assert "Left out: 2 files of tests that passed with the same inputs before" in said


def test_all_files_run_without_the_option(tree: Path) -> None:
    run(tree)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tree, capture_output=True, text=True)
    assert "7 passed" in done.stdout


@pytest.mark.parametrize(
    ("name", "text", "again"),
    [
        ("source/two.txt", "22", {"test_even"}),
        ("source/new.txt", "", {"test_even"}),
        (ODDS, ODD + "\n", {"test_odd"}),
        ("sim/machine/inside.py", "def wheel(): 1", {"test_odd"}),
        ("sim/machine/other.py", "1", set()),
        ("tests/odd/conftest.py", "", {"test_odd"}),
        ("tests/odd/data/rows.txt", "1", {"test_odd"}),
        (str(TABLE), f"{TWO}\n# nothing else", set()),
        ("tests/conftest.py", CONFTEST + "\n", {"test_even", "test_odd"}),
        ("pytest.ini", SETTINGS + "\n", {"test_even", "test_odd"}),
        (str(TABLE), TWO.replace("echo 1", "echo 2"), {"test_even"}),
        (str(RECORD), "{}", {"test_even", "test_odd"}),
        (str(RECORD), "damaged", {"test_even", "test_odd"}),
    ],
    ids=[
        "an input", "a new input", "a test", "a module that it runs", "a module that it does not run", "new fixtures",
        "data beside it", "the table without its rows", "fixtures", "an input of all", "a tool",
        "no record", "a damaged record",
    ],
)  # fmt: skip
def test_what_changed_runs_again(tree: Path, name: str, text: str, again: set[str]) -> None:
    run(tree)
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text(text)
    assert run(tree)[0] == again | ALWAYS


@WORKERS
def test_a_file_that_fails_is_not_recorded(tree: Path, workers: tuple[str, ...]) -> None:
    (tree / "source/two.txt").write_text("fault")
    run(tree, *workers)
    assert set(load(tree)) == {ODDS}


def test_a_file_that_fails_on_the_inputs_with_which_it_passed_is_forgotten(tree: Path) -> None:
    (tree / EVEN).write_text("import os\ndef test_one(): assert not os.environ.get('FAULT')")
    run(tree)
    (tree / "tests/conftest.py").write_text(CONFTEST + "import os; os.environ['FAULT'] = '1'")
    before = load(tree)
    assert run(tree)[0] == {"test_odd", *ALWAYS}
    assert set(before) == {EVEN, ODDS}
    assert set(load(tree)) == {ODDS}


def test_a_file_with_a_test_that_is_skipped_is_not_recorded(tree: Path) -> None:
    (tree / EVEN).write_text(TESTS + "\ndef test_none(): pytest.skip('no tool')")
    run(tree)
    assert set(load(tree)) == {ODDS}


@WORKERS
@pytest.mark.parametrize("when", ["def test_two(): ", ""], ids=["in a test", "when it is collected"])
def test_a_file_that_opens_what_is_not_among_its_inputs_is_not_recorded(
    tree: Path, workers: tuple[str, ...], when: str
) -> None:
    (tree / ODDS).write_text(f"{ODD}\n{when}open('source/two.txt').read()")
    _, said = run(tree, *workers)
    assert set(load(tree)) == {EVEN}
    assert f"{ODDS} opened source/two.txt: name it in {TABLE}" in said


def test_a_file_is_recorded_when_it_is_named(tree: Path) -> None:
    run(tree, "tests/odd")
    assert set(load(tree)) == {ODDS}


CHOICES = [
    ("-k", "one"),
    (f"{EVEN}::test_one",),
    ("--deselect", f"{EVEN}::test_one"),
    ("--deselect", f"{EVEN}::test_one", "-m", ""),  # as many tests as are quick, one of them slow
]


@pytest.mark.parametrize("options", CHOICES)
def test_a_choice_of_tests_records_no_file_of_which_some_did_not_run(tree: Path, options: tuple[str, ...]) -> None:
    run(tree, *options)
    assert EVEN not in load(tree)


def test_a_change_during_the_run_records_nothing(tree: Path) -> None:
    (tree / "tests/test_rest.py").write_text("def test_a(): open('source/two.txt', 'a').write('changed')")
    run(tree)
    assert set(load(tree)) == {ODDS}


def test_a_file_that_is_no_more_is_forgotten(tree: Path) -> None:
    run(tree)
    (tree / RECORD).write_text(json.dumps(load(tree) | {"tests/even/test_old.py": "hash"}))
    (tree / "source/two.txt").write_text("22")
    run(tree)
    assert set(load(tree)) == {EVEN, ODDS}


def test_the_table_of_this_tree_names_what_exists() -> None:
    table = Table(ROOT)
    assert len(table.tests()) > 100
    assert all((ROOT / name).exists() for name in (*table.covered, *table.always))
    assert all((ROOT / name).exists() for one in table.inputs for name in (*one.when, *one.files))


PROGRAMS = {
    "import": "import machine.inside",
    "import of a name": "from machine import inside",
    "import in a function": "def test_a():\n    from machine import inside",
    "relative import": "",
    "a name that a package finds on first use": "from machine import wheel",
    "a package with such names": "import machine",
    "a program": 'CODE = "import sys\\nfrom machine.inside import wheel"',
    "a program of one line": 'CODE = "import machine.inside; machine.inside.wheel()"',
    "a second statement of a line": 'CODE = "import sys; from machine.inside import wheel"',
    "names in brackets": 'CODE = "from json import (\\nloads,\\n)\\nfrom machine import (\\nother,\\ninside,\\n)"',
    "a module's name": 'NAME = "machine.inside"',
    "a name in a module": 'NAME = "machine.inside:wheel"',
    "a file from the root": 'NAME = "sim/machine/inside.py"',
    "a file beside it": 'NAME = "../../sim/machine/inside.py"',
    "a module that is known later": 'NAME = f"machine.{NAME}"',
    "a command": 'COMMAND = "python -m machine.inside"',
    "words of a command": 'COMMAND = ["python", "-m", "machine.inside"]',
    "a package's command": 'COMMAND = ["machine", "run"]',
}
LAZY = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from machine.inside import wheel
"""


@pytest.mark.parametrize("how", PROGRAMS)
def test_what_a_test_can_run_is_found(tree: Path, how: str) -> None:
    (tree / "sim/machine/__init__.py").write_text(LAZY)
    (tree / "sim/machine/__main__.py").write_text("from .inside import wheel")
    (tree / ODDS).write_text(PROGRAMS[how] or "import machine.__main__")
    assert tree / "sim/machine/inside.py" in closure([tree / ODDS], tree)


HARMLESS = {
    "another name of a package": "from machine import other",
    "an import for types": LAZY,
    "a docstring": '"""See machine.inside."""',
    "another package": "import json",
}


@pytest.mark.parametrize("how", HARMLESS)
def test_what_a_test_cannot_run_is_not_found(tree: Path, how: str) -> None:
    (tree / "sim/machine/__init__.py").write_text(LAZY)
    (tree / ODDS).write_text(HARMLESS[how])
    assert tree / "sim/machine/inside.py" not in closure([tree / ODDS], tree)


def test_the_name_of_a_file_is_no_module(tree: Path) -> None:
    (tree / ODDS).write_text('NAME = "machine.py"')
    assert tree / "sim/machine/__init__.py" not in closure([tree / ODDS], tree)
