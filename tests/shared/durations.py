"""The order of the tests: those that take longest first, so that no worker ends with a long one.

One worker runs a module's tests one after another, so that what they share is made once, unless they take too long.

`tests/durations.json` has their times: seconds by test, the format of pytest-split. Tests below a second are left out.
An entry is rewritten only where its test took half as long or twice as long, so that a run seldom changes the file.
`--store-durations` writes it, as `make test` does. `--shuffle SEED` runs the tests in a random order instead.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[1] / "durations.json"
LEAST = 1.0  # seconds
TOGETHER = 40.0  # seconds; a module that takes longer is divided among the workers
CHANGE = 2.0  # an entry is rewritten beyond this ratio


def load(path: Path) -> dict[str, float]:
    """Seconds by test. Empty where the file is missing or damaged, because it only speeds a run up."""
    try:
        return {str(name): float(seconds) for name, seconds in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def merged(old: dict[str, float], measured: dict[str, float], root: Path) -> dict[str, float]:
    """The new table: tests that were measured, and those of `old` whose file still is below `root`; seconds each."""
    found = {
        name: seconds for name, seconds in old.items() if name not in measured and (root / name.split("::")[0]).exists()
    }
    for name, seconds in measured.items():
        before = old.get(name, 0.0)
        stays = before and 1 / CHANGE <= seconds / before <= CHANGE
        now = before if stays else float(f"{seconds:.2g}")
        if now >= LEAST:
            found[name] = now
    return dict(sorted(found.items()))


def group_of(item: pytest.Item) -> str:
    """The name of the tests that one worker runs together; a test without a group is its own."""
    mark = item.get_closest_marker("xdist_group")
    if mark is None:
        return plain(item.nodeid)
    return str(mark.args[0] if mark.args else mark.kwargs["name"])


def plain(nodeid: str) -> str:
    """A test's name without the group that pytest-xdist appends."""
    return nodeid.rsplit("@", 1)[0] if nodeid.rfind("@") > nodeid.rfind("]") else nodeid


def keep_together(items: list[pytest.Item], seconds: dict[str, float]) -> None:
    """Group each module's quick tests that have no group of their own."""
    total: dict[str, float] = defaultdict(float)
    alone = [item for item in items if not item.get_closest_marker("xdist_group")]
    quick = [item for item in alone if not item.get_closest_marker("slow")]
    for item in quick:
        total[module_of(item)] += seconds.get(plain(item.nodeid), 0.0)
    for item in quick:
        if total[module_of(item)] <= TOGETHER:
            item.add_marker(pytest.mark.xdist_group(module_of(item)))


def module_of(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


def longest_first(items: list[pytest.Item], seconds: dict[str, float]) -> None:
    """Sort by the whole time of a test's group. Tests without a time follow in the order of their collection."""
    total: dict[str, float] = defaultdict(float)
    for item in items:
        total[group_of(item)] += seconds.get(plain(item.nodeid), 0.0)
    items.sort(key=lambda item: -total[group_of(item)])


def shuffle(items: list[pytest.Item], seed: int) -> None:
    """A random order of the modules and of the tests in each; a module's fixtures are made once, as in other orders."""
    chance = random.Random(seed)
    modules: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[module_of(item)].append(item)
    for tests in modules.values():
        chance.shuffle(tests)
    order = list(modules.values())
    chance.shuffle(order)
    items[:] = [item for tests in order for item in tests]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("order")
    group.addoption("--durations-path", type=Path, default=FILE, metavar="FILE", help="times of slow tests")
    group.addoption("--store-durations", action="store_true", help="write the times of slow tests to that file")
    group.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--store-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config.getoption("--durations-path"), config.rootpath))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    seconds, seed = load(config.getoption("--durations-path")), config.getoption("--shuffle")
    keep_together(items, seconds)
    yield  # what pytest and pytest-xdist do: leave tests out, and append the groups to their names
    if seed is not None:
        shuffle(items, seed)
    else:
        longest_first(items, seconds)


class Recorder:
    """Adds up the times that workers report: set-up, call and clean-up of each test that ran."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.root = root
        self.measured: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.measured[plain(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        old = load(self.path)
        new = merged(old, self.measured, self.root)
        if new != old:
            self.path.write_text(json.dumps(new, indent=0) + "\n")
