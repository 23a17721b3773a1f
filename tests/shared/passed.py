"""Files of tests that `make test` leaves out while nothing has changed that they depend on, as Bazel does.

`tests/passed.json` has, by file of tests, the hash of its inputs (tests/shared/inputs.py) with which all its tests
passed that are not slow. `--leave-out-passed` leaves out files whose hash is the same, and `--store-passed` writes the
hashes of those that pass. Without these options all tests run and nothing is written.

A file of the tree that a test opens in its own process must be among its inputs: else it is not recorded.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from durations import plain
from inputs import MADE, Table

RECORD = Path("tests/passed.json")
_NO_INPUTS = MADE | {".git", ".hypothesis", ".pytest_cache", ".venv", "build", "out"}  # folders of what is made


def load(root: Path) -> dict[str, str]:
    """The hash of each file that passed. Empty where the record is missing or damaged: then all tests run."""
    try:
        return {str(name): str(found) for name, found in json.loads((root / RECORD).read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("passed")
    group.addoption("--leave-out-passed", action="store_true", help=f"leave out files that passed, by {RECORD}")
    group.addoption("--store-passed", action="store_true", help=f"write the files that pass to {RECORD}")


def pytest_configure(config: pytest.Config) -> None:
    if not (config.getoption("--leave-out-passed") or config.getoption("--store-passed")):
        return
    given = getattr(config, "workerinput", {}).get("passed")  # of pytest-xdist: hashes are computed in one process
    if given is None:
        table, kept = Table(config.rootpath), load(config.rootpath)
        hashes = digests(table)
        passed = [test for test, found in hashes.items() if kept.get(test) == found]
        config.pluginmanager.register(Recorder(config, table, hashes, passed), "recorder of passed tests")
    else:
        passed = given
    config.pluginmanager.register(Watcher(config, passed), "watcher of tests")


def digests(table: Table) -> dict[str, str]:
    """The hash of each covered file of tests."""
    content: dict[str, str] = {}
    return {test: table.digest(test, content) for test in table.tests()}


class Watcher:
    """In the processes that run tests: leaves files out, lists the quick tests, and notes which files they open."""

    def __init__(self, config: pytest.Config, passed: Iterable[str]) -> None:
        self.config = config
        self.root = f"{config.rootpath}{os.sep}"
        self.left_out = set(passed) if config.getoption("--leave-out-passed") else set()
        self.quick: dict[str, list[str]] = defaultdict(list)
        self.opened: dict[str, set[str]] = defaultdict(set)
        self.running = ""  # a file of tests
        sys.addaudithook(self._audit)

    def _audit(self, event: str, given: tuple) -> None:
        if event == "open" and self.running and isinstance(given[0], (str, os.PathLike)):
            path = os.path.abspath(given[0])
            if path.startswith(self.root) and not (path.endswith(".py") and _by_hypothesis()):
                self.opened[self.running].add(path)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if self._name(collection_path) in self.left_out else None

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        self.running = self._name(collector.path) if collector.path.is_file() else ""
        try:
            return (yield)
        finally:
            self.running = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.running = self._name(item.path)
        try:
            return (yield)
        finally:
            self.running = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if not item.get_closest_marker("slow"):
                self.quick[self._name(item.path)].append(item.nodeid)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self.config, "workeroutput"):
            opened = {test: sorted(paths) for test, paths in self.found().items()}
            self.config.workeroutput["tests"] = {"quick": dict(self.quick), "opened": opened}

    def found(self) -> dict[str, set[str]]:
        """The files of the tree that each file of tests opened, without those that are made or are gone."""
        names = {
            test: {self._name(Path(path)) for path in paths if os.path.isfile(path)}
            for test, paths in self.opened.items()
        }
        return {
            test: {name for name in found if not _NO_INPUTS & set(name.split("/"))} for test, found in names.items()
        }

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else ""


def _by_hypothesis() -> bool:
    """Whether Hypothesis opens a file: it looks for constants in all modules that are loaded."""
    frame = sys._getframe()
    while frame := frame.f_back:
        if frame.f_globals.get("__name__", "").startswith("hypothesis.internal.constants"):
            return True
    return False


class Recorder:
    """In the process that sees all results: says what is left out, and writes which files have passed."""

    def __init__(self, config: pytest.Config, table: Table, hashes: dict[str, str], passed: list[str]) -> None:
        self.config = config
        self.table = table
        self.hashes = hashes
        self.passed = passed
        self.quick: dict[str, list[str]] = {}
        self.opened: dict[str, set[str]] = defaultdict(set)
        self.results: dict[str, set[str]] = {}  # outcomes by test
        self.unknown: dict[str, list[str]] = {}  # what tests opened that is none of their inputs

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist, as the next one
    def pytest_configure_node(self, node) -> None:
        node.workerinput["passed"] = self.passed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        told = getattr(node, "workeroutput", {}).get("tests", {})
        self.quick |= told.get("quick", {})
        for test, names in told.get("opened", {}).items():
            self.opened[test] |= set(names)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.results.setdefault(plain(report.nodeid), set()).add(report.outcome)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        watcher = self.config.pluginmanager.get_plugin("watcher of tests")
        self.quick |= watcher.quick
        for test, names in watcher.found().items():
            self.opened[test] |= names
        if not self.config.getoption("--store-passed") or any("::" in name for name in self.config.args):
            return
        old = load(self.config.rootpath)
        by_file: dict[str, dict[str, set[str]]] = defaultdict(dict)
        for name, found in self.results.items():
            by_file[name.split("::")[0]][name] = found
        # Where somebody changed an input during the run, it is unknown what has passed.
        after = digests(Table(self.config.rootpath))
        new = {}
        for test, found in self.hashes.items():
            self.unknown[test] = sorted(self.opened[test] - self.table.files(test))
            if test not in by_file:
                new[test] = old.get(test, "")
            elif self._has_passed(test, by_file[test]) and after.get(test) == found and not self.unknown[test]:
                new[test] = found
        new = {test: found for test, found in sorted(new.items()) if found}
        if new != old:
            (self.config.rootpath / RECORD).write_text(json.dumps(new, indent=0) + "\n")

    def _has_passed(self, test: str, results: dict[str, set[str]]) -> bool:
        """Whether each quick test of a file ran, and each of its tests that ran passed; one that is skipped did not."""
        ran = bool(self.quick.get(test)) and all(plain(name) in results for name in self.quick[test])
        return ran and all(found == {"passed"} for found in results.values())

    def pytest_terminal_summary(self, terminalreporter) -> None:
        for test, names in self.unknown.items():
            if names:
                terminalreporter.write_line(f"{test} opened {', '.join(names)}: name it in tests/inputs.toml")
        if self.passed and self.config.getoption("--leave-out-passed"):
            terminalreporter.write_line(
                f"Left out: {len(self.passed)} files of tests that passed with the same inputs before ({RECORD}). "
                "`make test ALL=1` runs all."
            )
