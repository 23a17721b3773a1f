# SPDX-License-Identifier: Apache-2.0
"""The example of docs/design/kernels.md does what the page says."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

from rtl import build
from rtl.kernels import HLS, ROOT, find_tops

PAGE = (ROOT / "docs/design/kernels.md").read_text()
DIFF = re.search(r"```diff\n(.*?)```", PAGE, re.DOTALL).group(1)


def lines(sign: str) -> str:
    return "\n".join(line[1:] for line in DIFF.splitlines() if line.startswith(sign))


def modules(folder: Path) -> dict[str, str]:
    """Texts by name."""
    return {path.name: path.read_text() for path in folder.glob("page_filter/rtl/*.sv")}


def test_the_changed_line_changes_one_buffer_of_the_rtl(tmp_path: Path, monkeypatch) -> None:
    (top,) = find_tops("page_filter")
    build.build(top, tmp_path / "before")
    changed = tmp_path / "hls"
    shutil.copytree(HLS, changed)
    source = changed / top.source.relative_to(HLS)
    assert source.read_text().count(lines("-")) == 1
    source.write_text(source.read_text().replace(lines("-"), lines("+")))
    monkeypatch.setattr(build, "HLS", changed)
    monkeypatch.chdir(tmp_path)  # comments name files as seen from here
    build.build(replace(top, source=source), tmp_path / "after")
    before, after = modules(tmp_path / "before"), modules(tmp_path / "after")
    assert {name for name in before if before[name] != after[name]} == {"mark_rows_process.sv"}
    old, new = before["mark_rows_process.sv"].splitlines(), after["mark_rows_process.sv"].splitlines()
    different = [(a.strip(), b.strip()) for a, b in zip(old, new, strict=True) if a != b]
    assert all("marked" in a or "mark_launch" in a or "give_back" in a for a, _ in different)
    ((a, b),) = [pair for pair in different if "marked_buffer" in pair[0]]
    assert a.replace(".DEPTH(10), .COUNT(4)", ".DEPTH(70), .COUNT(7)") == b


def test_every_command_of_the_page_exists() -> None:
    targets = set(re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"`make (\w+)", PAGE)) <= targets
