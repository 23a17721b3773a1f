"""What a file of tests depends on: the Python that it can run, the other files of its folder, and what
`tests/inputs.toml` names beside them."""

from __future__ import annotations

import hashlib
import platform
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path, PurePath

from imports import closure

TABLE = Path("tests/inputs.toml")
MADE = {"__pycache__"}  # folders of files that are made from others


@dataclass(frozen=True)
class Inputs:
    """What counts for a file of tests that is in one of the places `when`, or can run code there."""

    when: tuple[str, ...]
    files: tuple[str, ...]
    tools: tuple[str, ...]
    packages: tuple[str, ...]


class Table:
    """The table of the tree `root`. Nothing is covered where there is none.

    Raises TypeError for keys that are not those of Inputs, and KeyError for a table that names no covered tests.
    """

    def __init__(self, root: Path) -> None:
        table = tomllib.loads((root / TABLE).read_text()) if (root / TABLE).exists() else {"covered": []}
        self.root = root
        self.covered = tuple(table["covered"])
        self.always = tuple(table.get("always", ()))
        self.inputs = [Inputs(**{key: tuple(names) for key, names in one.items()}) for one in table.get("inputs", ())]
        self.closure = cache(lambda test: frozenset(self._relative(closure([root / test], root))))
        self.below = cache(self._below)
        self.files = cache(self._files)

    def tests(self) -> list[str]:
        """The covered files of tests."""
        places = [self.root / name for name in self.covered]
        found = (file for place in places for file in ([place] if place.is_file() else place.rglob("test_*.py")))
        return sorted({name for name in self._relative(found) if not within(name, self.always)})

    def _files(self, test: str) -> set[str]:
        """All files that a file of tests depends on. Raises FileNotFoundError for an input that does not exist."""
        place = next(name for name in self.covered if within(test, [name]))
        found = {*self.closure(test), *(name for name in self.below(place) if not name.endswith(".py"))}
        for one in self._that_count(test):
            for name in one.files:
                found |= self.below(name)
        return found

    def digest(self, test: str, content: dict[str, str]) -> str:
        """A hash of all that a file of tests depends on. `content`: hashes of files that were read before."""
        tables = self._that_count(test)
        found = hashlib.sha256(f"{sys.version} {platform.machine()}\n".encode())
        found.update(f"{[_version(tool) for one in tables for tool in one.tools]}\n".encode())
        found.update(f"{[metadata.version(package) for one in tables for package in one.packages]}\n".encode())
        for name in sorted(self.files(test)):
            if name not in content:
                content[name] = hashlib.sha256((self.root / name).read_bytes()).hexdigest()
            found.update(f"{name} {content[name]}\n".encode())
        return found.hexdigest()

    def _that_count(self, test: str) -> list[Inputs]:
        run = self.closure(test)
        return [one for one in self.inputs if any(within(name, one.when) for name in run)]

    def _below(self, name: str) -> set[str]:
        place = self.root / name
        if not place.exists():
            raise FileNotFoundError(f"{TABLE} names {name}, which does not exist")
        inside = place.rglob("*") if place.is_dir() else [place]
        return set(self._relative(path for path in inside if path.is_file() and not MADE & set(path.parts)))

    def _relative(self, paths: Iterable[Path]) -> Iterator[str]:
        return (path.relative_to(self.root).as_posix() for path in paths)


def within(name: str, places: Iterable[str]) -> bool:
    """Whether a file is one of these or below one of them. Paths are relative to the root of the tree."""
    return any(PurePath(name).is_relative_to(place) for place in places)


@cache
def _version(tool: str) -> str:
    """What a command prints, "" where it is not installed: a test that needs it is skipped then, and not recorded."""
    command = shlex.split(tool)
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
