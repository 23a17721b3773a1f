# SPDX-License-Identifier: Apache-2.0
"""Seeded faults: puts each one of a table into the tree, and tells whether the tests that it names find it.

A fault replaces a text that stands once in a file. What has to be compiled for it is built, the named tests run, and
the file gets its text back, also after ^C. Before that all named tests must pass. A fault counts as found if an
assertion of a test fails. A tree that does not build, or a test that ends in any other error, finds nothing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
TABLE = "tests/mutations.toml"
LIMIT_SECONDS = 900  # of a build or a run of pytest
ASSERTIONS = ("assert ", "AssertionError", "Failed: DID NOT RAISE")


class RunError(Exception):
    """The faults cannot be tried; the text says what to do."""


@dataclass(frozen=True)
class Fault:
    """`new` in the place of `old` in `file`. `wrong`: what that breaks. `tests`: names for pytest."""

    name: str
    part: str
    file: str
    old: str
    new: str
    wrong: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Build:
    """The command that compiles the files whose paths begin with `below`."""

    below: str
    command: str


@dataclass(frozen=True)
class Case:
    """What pytest reports of one test: `outcome` is "passed", "skipped", "failed" or "error"."""

    name: str
    outcome: str
    message: str = ""

    @property
    def found(self) -> bool:
        """True if an assertion failed."""
        return self.outcome == "failed" and self.message.startswith(ASSERTIONS)


@dataclass(frozen=True)
class Outcome:
    """What became of a fault. `by`: the test that found it, or why it was not found."""

    fault: Fault
    found: bool
    by: str
    seconds: float


def read_table(root: Path) -> tuple[list[Fault], list[Build]]:
    """The faults and build commands of the tree at `root`. Raises RunError if a text does not stand once."""
    table = tomllib.loads((root / TABLE).read_text())
    faults = [Fault(**fields | {"tests": tuple(fields["tests"])}) for fields in table["fault"]]
    for fault in faults:
        if (count := (root / fault.file).read_text().count(fault.old)) != 1:
            raise RunError(f"{fault.name}: its old text stands {count} times in {fault.file}: correct {TABLE}")
        if fault.old == fault.new or not fault.tests:
            raise RunError(f"{fault.name} changes nothing or names no test: correct {TABLE}")
    return faults, [Build(**fields) for fields in table.get("build", [])]


class Tree:
    """A working tree whose files are changed for a while."""

    def __init__(self, root: Path, builds: Sequence[Build]) -> None:
        self.root = root
        self.builds = builds
        self.outdated: set[Build] = set()  # their results do not belong to the files as they are

    def check_clean(self) -> None:
        """Raises RunError if git sees a change."""
        command = ["git", "status", "--porcelain"]
        if subprocess.run(command, cwd=self.root, capture_output=True, check=True).stdout:
            raise RunError("the tree has changes that are not committed: commit or stash them, then try again")

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        path = self.root / fault.file
        whole = path.read_bytes()
        self._outdate(fault.file)
        try:
            path.write_bytes(whole.replace(fault.old.encode(), fault.new.encode()))
            yield
        finally:
            path.write_bytes(whole)
            self._outdate(fault.file)

    def _outdate(self, file: str) -> None:
        self.outdated |= {build for build in self.builds if file.startswith(build.below)}

    def build(self) -> bool:
        """Compile what does not belong to the files as they are. Returns False if a command fails."""
        for build in list(self.outdated):
            if run_command(shlex.split(build.command), self.root, dict(os.environ)) != 0:
                return False
            self.outdated.discard(build)
        return True

    def run(self, tests: Sequence[str]) -> list[Case]:
        """Run tests up to the first that fails. Slow ones are left out, as in `make test`."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            options = ["-x", "-q", "-n0", "-m", "not slow", "-p", "no:cacheprovider", f"--junitxml={report}"]
            # A file that changes twice in a second must leave no compiled module.
            environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
            command = [sys.executable, "-m", "pytest", *options, *tests]
            run_command(command, self.root, environment)
            return [_case(one) for one in ElementTree.parse(report).iter("testcase")] if report.exists() else []


def run_command(command: Sequence[str], folder: Path, environment: dict[str, str]) -> int:
    """Run a command without its output, with a limit. Its processes end with it.

    Returns its status, or -1 if it was stopped at the limit.
    """
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    ) as process:
        try:
            return process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _case(found: ElementTree.Element) -> Case:
    name = f"{found.get('classname', '')}::{found.get('name', '')}"
    for tag, outcome in (("error", "error"), ("failure", "failed"), ("skipped", "skipped")):
        if (inner := found.find(tag)) is not None:
            return Case(name, outcome, inner.get("message", ""))
    return Case(name, "passed")


def is_case_of(case: Case, test: str) -> bool:
    """True for a case of `test`, which is written as for pytest: a file, a test in it, or one with its parameters."""
    path, _, name = test.partition("::")
    wanted = f"{path.removesuffix('.py').replace('/', '.')}::{name}"
    return case.name == wanted or case.name.startswith(f"{wanted}[" if name else wanted)


def check_tests(tree: Tree, faults: Sequence[Fault]) -> None:
    """Raises RunError unless all named tests run and pass without a fault."""
    tests = list(dict.fromkeys(test for fault in faults for test in fault.tests))
    cases = tree.run(tests)
    for case in cases:
        if case.outcome != "passed":
            raise RunError(f"without a fault, {case.name} ended as {case.outcome}: {case.message}")
    for test in tests:
        if not any(is_case_of(case, test) for case in cases):
            raise RunError(f"{test} does not run in `make test`: it does not exist, or is slow")


def try_fault(tree: Tree, fault: Fault) -> Outcome:
    """Put a fault into the tree and run its tests."""
    begin = time.monotonic()
    with tree.with_fault(fault):
        cases = tree.run(fault.tests) if tree.build() else [Case("", "error", "it does not build")]
    seconds = time.monotonic() - begin
    if not cases:
        return Outcome(fault, False, "pytest ended without a report", seconds)
    last = cases[-1]
    if last.found:
        return Outcome(fault, True, last.name, seconds)
    reason = "survived" if last.outcome == "passed" else f"{last.outcome}: {last.message.partition(chr(10))[0]}"
    return Outcome(fault, False, reason, seconds)


def show(outcomes: Sequence[Outcome], console: Console) -> None:
    table = Table(title="seeded faults")
    for name in ("fault", "found by", "seconds"):
        table.add_column(name, justify="right" if name == "seconds" else "left", overflow="fold")
    for one in outcomes:
        by = one.by if one.found else f"NOT FOUND ({one.by})"
        table.add_row(one.fault.name, escape(by), f"{one.seconds:.0f}")
    console.print(table)


def try_all(root: Path, only: str | None, console: Console) -> bool:
    """Try the faults and print the table. Returns True if all are found. Raises RunError."""
    faults, builds = read_table(root)
    if only:
        faults = [fault for fault in faults if only in (fault.name, fault.part)]
        if not faults:
            raise RunError(f"there is no fault and no part '{only}' in {TABLE}")
    tree = Tree(root, builds)
    tree.check_clean()
    check_tests(tree, faults)
    outcomes: list[Outcome] = []
    try:
        for fault in faults:
            outcomes.append(try_fault(tree, fault))
            console.print(f"{fault.name}: {outcomes[-1].by}", markup=False, soft_wrap=True)
    finally:
        show(outcomes, console)
    if not tree.build():
        raise RunError("the tree does not build any more without a fault")
    return all(one.found for one in outcomes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="one fault, or the faults of one part")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree (default: this one)")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    try:
        return 0 if try_all(options.root, options.only, console) else 1
    except RunError as error:
        console.print(f"mutations: {error}", markup=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        console.print("mutations: stopped. All files have their own text; `make setup` builds what is out of date.")
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
