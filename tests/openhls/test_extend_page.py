# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/extend.md about the compiler and the kernels fit the sources; the one of the pragma works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/extend.md").read_text()
NEST = """#include <hls_stream.h>
void top(hls::stream<int>& in, hls::stream<int>& out, int rows) {
  for (int i = 0; i < rows; i++) {
#pragma HLS LOOP_FLATTEN off
  inner:
    for (int j = 0; j < 8; j++) {
#pragma HLS PIPELINE II = 1
      out.write(in.read() + j);
    }
  }
}
"""
Change = tuple[str, str]  # lines that go and lines that come


def changes(section: str) -> dict[str, list[Change]]:
    """What the first diff of a section changes, by file."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    diff = re.search(r"```diff\n(.*?)```", text, re.DOTALL)
    assert diff is not None
    found: dict[str, list[Change]] = {}
    for part in re.split(r"^--- ", diff.group(1), flags=re.MULTILINE)[1:]:
        file, body = part.split("\n", 1)
        runs = re.findall(r"((?:^-.*\n)*)((?:^\+.*\n)*)", body, re.MULTILINE)
        found[file] = [tuple(re.sub(r"^.", "", side, flags=re.MULTILINE) for side in run) for run in runs if any(run)]
    return found


def test_the_lines_that_the_pages_change_are_those_of_the_sources() -> None:
    for section in ("Add a pragma", "Add a kernel mode"):
        for file, pairs in changes(section).items():
            text = (ROOT / file).read_text()
            assert [old for old, _ in pairs if old and text.count(old.removesuffix("\n")) != 1] == [], file


def test_the_pragma_of_the_page_keeps_a_nest(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "sim/openhls", tmp_path / "sim/openhls", ignore=shutil.ignore_patterns("__pycache__"))
    for file, pairs in changes("Add a pragma").items():
        path = tmp_path / file
        for old, new in pairs:
            path.write_text(path.read_text().replace(old.removesuffix("\n"), new.removesuffix("\n")))
    (tmp_path / "nest.cpp").write_text(NEST)
    trips = {}
    for name, tree in (("before", ROOT), ("after", tmp_path)):
        # -S: without the hooks of an editable installation, which would find the sources of the project.
        command = [sys.executable, "-S", "-m", "openhls", "build", "nest.cpp", "--top", "top", "--out", "out"]
        environment = os.environ | {"PYTHONPATH": str(tree / "sim")}
        done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
        trips[name] = re.search(r" inner +1 +1 +\d+ +(\d+)? ", done.stdout).group(1)
        assert ("LOOP_FLATTEN off has no effect" in done.stderr) is (name == "before")
    assert trips == {"before": None, "after": "8"}
