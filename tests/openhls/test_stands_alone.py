# SPDX-License-Identifier: Apache-2.0
"""openhls stands alone: its two-minute start works as written, and neither it nor its tests need the rest."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = ROOT / "sim/openhls"
README = (COMPILER / "README.md").read_text()
OF_TESTS = {"pytest", "hypothesis", "openhls"}
SHARED = ROOT / "tests/shared"


@pytest.mark.usefixtures("verilator")
def test_the_two_minute_start_prints_what_the_readme_shows(tmp_path: Path) -> None:
    section = README.split("## Two minutes\n")[1].split("\n## ")[0]
    for name, text in re.findall(r"```cpp\n// (\S+)\n(.*?)```", section, re.S):
        (tmp_path / name).write_text(text)
    (console,) = re.findall(r"```console\n(.*?)```", section, re.S)
    steps = [step.splitlines() for step in console.split("$ ")[1:]]
    assert [line.split()[1] for line, *_ in steps] == ["csim", "build", "cosim", "report"]
    for line, *shown in steps:
        program, *words = line.split()
        assert program == "openhls"
        command = [sys.executable, "-m", "openhls", *words]
        environment = {"PYTHONPATH": str(ROOT / "sim"), "PATH": os.environ["PATH"], "HOME": str(Path.home())}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-len(shown) :] == shown or not shown
    assert list((tmp_path / "rtl/rtl").glob("vadd*.sv"))


ALONE = """
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {*sys.stdlib_module_names, "openhls"}:
            raise ImportError(f"{name} is not part of openhls")

sys.meta_path.insert(0, Blocked())
import openhls
names = [each.name for each in pkgutil.walk_packages(openhls.__path__, "openhls.") if "__main__" not in each.name]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def test_every_module_is_imported_with_the_standard_library_alone() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, cwd=ROOT / "sim", check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_tests_of_the_compiler_import_nothing_of_the_rest() -> None:
    """Neither the tests nor what they share: no runtime, no torch."""
    pending = sorted((ROOT / "tests/openhls").rglob("*.py"))
    assert len(pending) > 30
    seen: set[str] = set()
    while pending:
        path = pending.pop()
        for name in set(_imports(path)) - sys.stdlib_module_names - OF_TESTS - seen:
            shared = SHARED / f"{name}.py"
            assert shared.exists(), f"{path} imports {name}"
            seen.add(name)
            pending.append(shared)


def test_the_package_has_every_file_of_the_compiler() -> None:
    table = tomllib.loads((COMPILER / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    suffixes = {pattern.removeprefix("*") for pattern in table["include"]}
    files = [path for path in COMPILER.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.suffix for path in files} - suffixes == {".md"}
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = tomllib.loads((COMPILER / "pyproject.toml").read_text())["project"]
    assert own["version"] == root["version"]
    assert own["dependencies"] == root["optional-dependencies"]["openhls"]
