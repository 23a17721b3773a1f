"""Parts of the tests that `make test` leaves out while nothing has changed that they depend on, as Bazel does.

`tests/parts.toml` names the parts, their inputs and their tools; `tests/passed.json` has, by part, the hash of these
with which all its tests passed that are not slow. `--leave-out-passed` leaves out parts whose hash is the same, and
`--store-passed` writes the hashes of those that pass. Without these options all tests run and nothing is written.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePath

import pytest
from durations import plain

TABLE = Path("tests/parts.toml")
RECORD = Path("tests/passed.json")
_MADE = {"__pycache__"}  # folders of files that are made from others


@dataclass(frozen=True)
class Part:
    """Tests and what they depend on. Paths are relative to the root of the tree."""

    name: str
    tests: tuple[str, ...]
    inputs: tuple[str, ...]
    tools: tuple[str, ...]
    packages: tuple[str, ...]

    def has(self, path: str) -> bool:
        """Whether a file of tests is of this part."""
        return any(PurePath(path).is_relative_to(test) for test in self.tests)


def read_parts(root: Path) -> list[Part]:
    """The parts of a tree, none where it has no table. Raises TypeError for a part with other keys than a Part's."""
    if not (root / TABLE).exists():
        return []
    table = tomllib.loads((root / TABLE).read_text())
    every = table.pop("every")["inputs"]
    return [
        Part(name, **{key: (*found, *every) if key == "inputs" else tuple(found) for key, found in part.items()})
        for name, part in table.items()
    ]


def digest(part: Part, root: Path) -> str:
    """A hash of the names and contents of all files of a part, and of the versions of its tools.

    Raises FileNotFoundError for an input that does not exist."""
    found = hashlib.sha256(f"{sys.version} {[_version(tool) for tool in part.tools]}\n".encode())
    found.update(f"{[metadata.version(package) for package in part.packages]}\n".encode())
    for path in _files(part, root):
        found.update(f"{path.relative_to(root).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def _files(part: Part, root: Path) -> Iterator[Path]:
    for named in sorted({*part.tests, *part.inputs}):
        place = root / named
        if not place.exists():
            raise FileNotFoundError(f"{TABLE} names {named}, which does not exist")
        inside = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in inside if path.is_file() and not _MADE & set(path.parts))


def _version(tool: str) -> str:
    """What a command prints, "" where it is not installed: a test that needs it is skipped then, and not recorded."""
    command = shlex.split(tool)
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def load(root: Path) -> dict[str, str]:
    """The hash of each part that has passed. Empty where the file is missing or damaged: then all parts run."""
    try:
        return {str(name): str(found) for name, found in json.loads((root / RECORD).read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("parts")
    group.addoption("--leave-out-passed", action="store_true", help=f"leave out parts that passed, by {RECORD}")
    group.addoption("--store-passed", action="store_true", help=f"write the parts that pass to {RECORD}")


def pytest_configure(config: pytest.Config) -> None:
    if not (config.getoption("--leave-out-passed") or config.getoption("--store-passed")):
        return
    parts = read_parts(config.rootpath)
    given = getattr(config, "workerinput", {}).get("passed")  # of pytest-xdist: hashes are computed in one process
    if given is None:
        kept = load(config.rootpath)
        hashes = {part.name: digest(part, config.rootpath) for part in parts}
        passed = [name for name, found in hashes.items() if kept.get(name) == found]
        config.pluginmanager.register(Recorder(config, parts, hashes, passed), "parts recorder")
    else:
        passed = given
    config.pluginmanager.register(Selector(config, parts, passed), "parts selector")


class Selector:
    """In the processes that collect tests: leaves parts out, and lists the quick tests of all parts."""

    def __init__(self, config: pytest.Config, parts: Iterable[Part], passed: Iterable[str]) -> None:
        self.config = config
        self.parts = list(parts)
        self.left_out = set(passed) if config.getoption("--leave-out-passed") else set()
        self.quick: dict[str, list[str]] = defaultdict(list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        stay, leave = [], []
        for item in items:
            part = part_of(item.nodeid, self.parts)
            if part and not item.get_closest_marker("slow"):
                self.quick[part].append(item.nodeid)
            (leave if part in self.left_out else stay).append(item)
        if leave:
            items[:] = stay
            self.config.hook.pytest_deselected(items=leave)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["tests of parts"] = dict(self.quick)


class Recorder:
    """In the process that sees all results: says what is left out, and writes which parts have passed."""

    def __init__(self, config: pytest.Config, parts: list[Part], hashes: dict[str, str], passed: list[str]) -> None:
        self.config = config
        self.parts = parts
        self.hashes = hashes
        self.passed = passed
        self.quick: dict[str, list[str]] = {}
        self.results: dict[str, set[str]] = {}  # outcomes by test

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist, as the next one
    def pytest_configure_node(self, node) -> None:
        node.workerinput["passed"] = self.passed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        self.quick |= getattr(node, "workeroutput", {}).get("tests of parts", {})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.results.setdefault(plain(report.nodeid), set()).add(report.outcome)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        selector = self.config.pluginmanager.get_plugin("parts selector")
        quick = self.quick or selector.quick
        if not self.config.getoption("--store-passed") or self.config.args_source != self.config.ArgsSource.TESTPATHS:
            return
        root = self.config.rootpath
        old = load(root)
        found = [part for part in self.parts if self._has_passed(part, quick.get(part.name, []))]
        # Where somebody changed an input during the run, it is unknown what has passed.
        now = {part.name: self.hashes[part.name] for part in found if digest(part, root) == self.hashes[part.name]}
        new = {name: kept for name, kept in (old | now).items() if name in self.hashes}
        if new != old:
            (root / RECORD).write_text(json.dumps(new, indent=0, sort_keys=True) + "\n")

    def _has_passed(self, part: Part, quick: list[str]) -> bool:
        """Whether each quick test of a part ran, and each of its tests that ran passed; one that is skipped did not."""
        results = {name: found for name, found in self.results.items() if part.has(name.split("::")[0])}
        ran = bool(quick) and all(plain(name) in results for name in quick)
        return ran and all(found == {"passed"} for found in results.values())

    def pytest_terminal_summary(self, terminalreporter) -> None:
        if self.passed and self.config.getoption("--leave-out-passed"):
            names = ", ".join(self.passed)
            terminalreporter.write_line(
                f"Left out, because they passed with the same inputs before: {names}. `make test-full` runs all."
            )


def part_of(nodeid: str, parts: Iterable[Part]) -> str:
    """The name of a test's part, "" where it has none."""
    path = nodeid.split("::")[0]
    return next((part.name for part in parts if part.has(path)), "")
