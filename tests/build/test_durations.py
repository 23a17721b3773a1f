"""The order of the tests and the file of their times, in runs of pytest on a few small ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from durations import merged

SHARED = Path(__file__).resolve().parents[1] / "shared"
CONFTEST = """
import sys
sys.path.insert(0, {shared!r})
pytest_plugins = ["durations"]
"""
TESTS = """
import pytest

def test_short(): pass

@pytest.mark.xdist_group("pair")
def test_first_of_the_pair(): pass

def test_longest(): pass

@pytest.mark.xdist_group("pair")
def test_second_of_the_pair(): pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with four tests, whose times are in durations.json."""
    (tmp_path / "conftest.py").write_text(CONFTEST.format(shared=str(SHARED)))
    (tmp_path / "test_few.py").write_text(TESTS)
    times = {"test_longest": 50.0, "test_first_of_the_pair": 2.0, "test_second_of_the_pair": 2.0}
    named = {f"test_few.py::{name}": seconds for name, seconds in times.items()}
    (tmp_path / "durations.json").write_text(json.dumps(named))
    return tmp_path


def order(suite: Path, *options: str) -> list[str]:
    """Names of the tests in the order in which they run."""
    plugins = ["-p", "no:cacheprovider", "-p", "xdist.plugin"]
    command = [sys.executable, "-m", "pytest", "-v", *plugins, "--rootdir", str(suite), *options]
    done = subprocess.run(
        [*command, "--durations-path", str(suite / "durations.json"), str(suite)],
        cwd=suite,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # some take seconds to import
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split("::")[1].split(" ")[0] for line in done.stdout.splitlines() if " PASSED" in line]


def test_longest_groups_run_first_and_stay_together(suite: Path) -> None:
    pair = ["test_first_of_the_pair", "test_second_of_the_pair"]
    assert order(suite) == ["test_longest", *pair, "test_short"]


def test_a_modules_tests_stay_together_while_they_are_quick(suite: Path) -> None:
    times = json.loads((suite / "durations.json").read_text())
    (suite / "durations.json").write_text(json.dumps(times | {"test_few.py::test_longest": 5.0}))
    pair = ["test_first_of_the_pair", "test_second_of_the_pair"]
    assert order(suite) == ["test_short", "test_longest", *pair]
    assert order(suite, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder")  # the names of groups are known


def test_damaged_times_leave_the_order_of_the_files(suite: Path) -> None:
    (suite / "durations.json").write_text("[1, 2")
    names = ["test_short", "test_first_of_the_pair", "test_longest", "test_second_of_the_pair"]
    assert order(suite) == names


def test_shuffled_orders_depend_on_the_seed_alone(suite: Path) -> None:
    orders = {seed: order(suite, "--shuffle", str(seed)) for seed in range(3)}
    assert orders[1] == order(suite, "--shuffle", "1")
    assert len(set(map(tuple, orders.values()))) > 1
    assert len({frozenset(names) for names in orders.values()}) == 1


def test_stored_times_leave_out_short_tests(suite: Path) -> None:
    order(suite, "--store-durations")
    assert json.loads((suite / "durations.json").read_text()) == {}


def test_an_entry_stays_until_its_test_takes_half_or_twice_as_long(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    old = {"a.py::same": 4.0, "a.py::slower": 4.0, "a.py::fast_now": 4.0, "a.py::not_run": 4.0, "b.py::gone": 4.0}
    measured = {"a.py::same": 7.9, "a.py::slower": 8.26, "a.py::fast_now": 0.1, "a.py::new": 1.234, "a.py::short": 0.9}
    assert merged(old, measured, tmp_path) == {
        "a.py::same": 4.0,
        "a.py::slower": 8.3,
        "a.py::not_run": 4.0,
        "a.py::new": 1.2,
    }
