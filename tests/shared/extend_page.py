"""docs/design/extend.md as data: its sections, their tables and their changes of files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/design/extend.md"


@dataclass(frozen=True)
class Change:
    """Whole lines of a file and those that replace them. Without old lines, the new ones go to the end of the file."""

    file: str
    old: str
    new: str

    def place(self, tree: Path) -> int:
        """Where the old lines begin. Raises ValueError unless they stand in the file exactly once."""
        path = tree / self.file
        text = path.read_text() if path.exists() else ""
        if not self.old:
            return len(text)
        if ("\n" + text).count("\n" + self.old) != 1:
            raise ValueError(f"{self.file} does not have these lines exactly once:\n{self.old}")
        return ("\n" + text).index("\n" + self.old)

    def apply(self, tree: Path) -> None:
        """Change the file, which may be new."""
        at, path = self.place(tree), tree / self.file
        text = path.read_text() if path.exists() else ""
        path.write_text(text[:at] + self.new + text[at + len(self.old) :])


def sections() -> dict[str, str]:
    """The text of every "Add ..." section by its title."""
    return dict(re.findall(r"^## (Add .*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.S | re.M))


def blocks(title: str, language: str) -> list[str]:
    """The code of one language in a section, block by block."""
    return re.findall(rf"^```{language}\n(.*?)^```", sections()[title], re.S | re.M)


def table_files(title: str) -> list[str]:
    """The paths in the first table of a section."""
    rows = re.findall(r"(?:^\|.*\n)+", sections()[title], re.M)[0].splitlines()[2:]
    cells = (cell for row in rows for cell in row.split("|") if re.search(r"`[\w/<>]+/|\.txt`", cell))
    return [re.search(r"`(.+?)`", cell).group(1) for cell in cells]


def changes(title: str) -> list[Change]:
    """The changes of a section's diffs, in order."""
    found = []
    for diff in blocks(title, "diff"):
        for part in re.split(r"^--- ", diff, flags=re.M)[1:]:
            file, body = part.split("\n", 1)
            for place in re.split(r"^@@\n", body, flags=re.M):
                lines = place.splitlines(keepends=True)
                old, new = ("".join(line[1:] for line in lines if line[0] in kinds) for kinds in (" -", " +"))
                found += [Change(file, old, new)] if lines else []
    return found


def apply(title: str, tree: Path) -> None:
    """Make the changes of a section in a copy of the sources."""
    for change in changes(title):
        change.apply(tree)


def python(tree: Path, *arguments: str, folder: str = "") -> subprocess.CompletedProcess[str]:
    """What Python says in a folder of `tree`, with the packages of `tree`. Raises AssertionError where it fails."""
    paths = (tree / "host", tree / "sim", sysconfig.get_paths()["purelib"])
    tools = (str(Path(sys.executable).parent), os.environ["PATH"])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PATH": os.pathsep.join(tools)}
    # -S: without the hooks of an editable installation, which would find the sources of the project.
    command = [sys.executable, "-S", *arguments]
    done = subprocess.run(command, cwd=tree / folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
