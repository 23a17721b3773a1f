"""Blocks `<!-- SUITE/NAME -->` of all pages, from results/: the last measurement, or with a machine's name its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bench import results
from kvdrive.tree import ROOT
from pages.blocks import filled

_BLOCK = re.compile(r"<!-- (?P<name>[\w-]+/[\w-]+)(?: (?P<machine>[\w-]+))? -->\n")


def places(root: Path = ROOT) -> Iterator[tuple[Path, str, str]]:
    """Page, SUITE/NAME and machine of each block."""
    for page in (root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))):
        for found in _BLOCK.finditer(page.read_text()) if page.exists() else ():
            yield page, found["name"], found["machine"] or ""


def texts(root: Path = ROOT) -> dict[Path, str]:
    """The pages with blocks. Raises KeyError for a block without a result."""
    blocks: dict[Path, dict[str, str]] = {}
    for page, name, machine in places(root):
        shown = results.latest(name, machine, root / "results").text()
        blocks.setdefault(page, {})[f"{name} {machine}".rstrip()] = shown
    return {page: filled(page, found) for page, found in blocks.items()}
