"""Parts of the tests that passed before are left out, until one of their inputs changes."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from parts import RECORD, TABLE, Part, digest, load, read_parts

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT / "tests/shared"
PARTS = read_parts(ROOT)
CONFTEST = f"""
import sys
sys.path.insert(0, {str(SHARED)!r})
pytest_plugins = ["parts"]
"""
SETTINGS = """
[pytest]
testpaths = tests
markers = slow
"""
TABLE_OF_TWO = """
[every]
inputs = ["tests/conftest.py"]
[even]
tests = ["tests/even"]
inputs = ["source"]
tools = ["sh -c 'echo 1'"]
packages = ["pytest"]
[odd]
tests = ["tests/odd/test_odd.py"]
inputs = []
tools = []
packages = []
"""
TESTS = """
import pytest
from pathlib import Path

def test_one(): pass

def test_source(): assert "fault" not in Path("source/two.txt").read_text()

@pytest.mark.slow
def test_slow(): pass
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two parts with three tests each, one of them slow, and one test that is of no part."""
    files = {"pytest.ini": SETTINGS, "tests/conftest.py": CONFTEST, str(TABLE): TABLE_OF_TWO, "source/two.txt": "2"}
    files |= {"tests/even/test_even.py": TESTS, "tests/odd/test_odd.py": TESTS, "tests/test_rest.py": "def test_a(): 1"}
    for name, text in files.items():
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
def test_a_part_that_passed_is_left_out(tree: Path, workers: tuple[str, ...]) -> None:
    assert run(tree, *workers)[0] == {"test_even", "test_odd", "test_rest"}
    assert set(load(tree)) == {"even", "odd"}
    ran, said = run(tree, *workers)
    assert ran == {"test_rest"}
    assert "passed with the same inputs before: even, odd." in said


def test_all_parts_run_without_the_option(tree: Path) -> None:
    run(tree)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tree, capture_output=True, text=True)
    assert "7 passed" in done.stdout


@pytest.mark.parametrize(
    ("name", "text", "again"),
    [
        ("source/two.txt", "22", {"test_even"}),
        ("source/new.txt", "", {"test_even"}),
        ("tests/odd/test_odd.py", TESTS + "\n", {"test_odd"}),
        ("tests/conftest.py", CONFTEST + "\n", {"test_even", "test_odd"}),
        (str(TABLE), TABLE_OF_TWO.replace("echo 1", "echo 2"), {"test_even"}),
        (str(RECORD), "{}", {"test_even", "test_odd"}),
        (str(RECORD), "damaged", {"test_even", "test_odd"}),
    ],
    ids=["an input", "a new input", "a test", "an input of all", "a tool", "no record", "a damaged record"],
)
def test_what_changed_runs_again(tree: Path, name: str, text: str, again: set[str]) -> None:
    run(tree)
    (tree / name).write_text(text)
    assert run(tree)[0] == again | {"test_rest"}


@WORKERS
def test_a_part_that_fails_is_not_recorded(tree: Path, workers: tuple[str, ...]) -> None:
    (tree / "source/two.txt").write_text("fault")
    run(tree, *workers)
    assert load(tree) == {}


def test_a_part_with_a_test_that_is_skipped_is_not_recorded(tree: Path) -> None:
    (tree / "tests/even/test_skipped.py").write_text("import pytest\ndef test_none(): pytest.skip('no tool')")
    run(tree)
    assert set(load(tree)) == {"odd"}


CHOICES = [
    ("-k", "one"),
    ("tests/odd",),
    ("--deselect", "tests/odd/test_odd.py::test_one"),
    ("--deselect", "tests/odd/test_odd.py::test_one", "-m", ""),  # as many tests as are quick, one of them slow
]


@pytest.mark.parametrize("options", CHOICES)
def test_a_choice_of_tests_records_no_part_of_which_some_did_not_run(tree: Path, options: tuple[str, ...]) -> None:
    run(tree, *options)
    assert "odd" not in load(tree)


def test_a_change_during_the_run_records_nothing(tree: Path) -> None:
    (tree / "tests/test_rest.py").write_text("def test_a(): open('source/two.txt', 'a').write('changed')")
    run(tree)
    assert set(load(tree)) == {"odd"}


def test_a_part_that_is_no_more_is_forgotten(tree: Path) -> None:
    run(tree)
    (tree / RECORD).write_text(json.dumps(load(tree) | {"old": "hash"}))
    (tree / "source/two.txt").write_text("22")
    run(tree)
    assert set(load(tree)) == {"even", "odd"}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_inputs_exist_and_are_hashed(part: Part) -> None:
    assert len(digest(part, ROOT)) == 64
    assert part.tests


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_module_that_a_part_imports_is_among_its_inputs(part: Part) -> None:
    named = [ROOT / name for name in (*part.tests, *part.inputs)]
    tests = [file for name in part.tests for file in python_files(ROOT / name)]
    outside = {file for file in imported(tests) if not any(file.is_relative_to(place) for place in named)}
    assert outside == set()


def python_files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


PLACES = [ROOT / name for name in ("sim", "scripts", "host", "tests/shared", "tests/drive", "tests/host")]


def imported(files: list[Path]) -> set[Path]:
    """The files of this tree that are imported by these, and by those, and so on."""
    seen, pending = set(files), list(files)
    while pending:
        for found in imports_of(pending.pop()):
            if found not in seen:
                seen.add(found)
                pending.append(found)
    return seen


def imports_of(file: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from files_of(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level:
            package = file.parents[node.level - 1]
            yield from files_in(package, [node.module] if node.module else [])
            yield from (
                found for alias in node.names for found in files_in(package / (node.module or ""), [alias.name])
            )
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from files_of(node.module)
            yield from (found for alias in node.names for found in files_of(f"{node.module}.{alias.name}"))


def files_of(module: str) -> Iterator[Path]:
    for place in PLACES:
        yield from files_in(place, module.split("."))


def files_in(place: Path, names: list[str]) -> Iterator[Path]:
    """Of a.b.c: a/__init__.py, a/b/__init__.py, and a/b/c.py or a/b/c/__init__.py; those that exist."""
    for depth in range(1, len(names) + 1):
        path = place.joinpath(*names[:depth])
        yield from (found for found in (path / "__init__.py", path.with_suffix(".py")) if found.exists())
