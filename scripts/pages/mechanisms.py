"""The papers' mechanisms in running code, with the tests that show them: docs/results/mechanisms.md."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from kvdrive.tree import ROOT
from pages.blocks import filled

FACTS = Path(__file__).with_name("mechanisms.toml")
PAGE = ROOT / "docs/results/mechanisms.md"


def papers() -> list[dict[str, Any]]:
    """Each paper with its `name` and its `rows`: `section`, `name`, `code`, and `test` or `open`."""
    return tomllib.loads(FACTS.read_text(encoding="utf-8"))["paper"]


def texts() -> dict[Path, str]:
    """The page."""
    lines: list[str] = []
    for paper in papers():
        lines += [f"### {paper['name']}", "", "| Section | Mechanism | Read on in | Shown by |", "|---|---|---|---|"]
        lines += [
            f"| {row['section']} | {row['name']} | {linked(row['code'])} | {shown(row)} |" for row in paper["rows"]
        ]
        lines.append("")
    rows = [row for paper in papers() for row in paper["rows"]]
    run = sum("test" in row for row in rows)
    lines.append(f"{run} of {len(rows)} run, each shown by a test that `make test` runs.")
    return {PAGE: filled(PAGE, {"mechanisms": "\n".join(lines)})}


def linked(path: str) -> str:
    """A link from the page to a file or folder of the tree."""
    return f"[{Path(path).name}](../../{path})"


def shown(row: dict[str, Any]) -> str:
    """The test of a mechanism, or why there is none."""
    if "test" not in row:
        return f"**not yet, or not here**: {row['open']}"
    path, _, name = row["test"].partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../../{path})"
