# SPDX-License-Identifier: Apache-2.0
"""Tables of a regression: functional coverage, FIFO high-water marks, cycles against the formula."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tb.common.fifos import Fifo


@dataclass
class Coverage:
    """Bins that a regression should hit, by group, and how often it hit them."""

    bins: dict[str, Counter[str]] = field(default_factory=dict)

    def declare(self, group: str, names: Iterable[object]) -> None:
        self.bins.setdefault(group, Counter()).update({str(name): 0 for name in names})

    def hit(self, group: str, name: object) -> None:
        """Count a hit. Raises KeyError for a bin that was not declared."""
        if str(name) not in self.bins[group]:
            raise KeyError(f"coverage group {group} has no bin {name}")
        self.bins[group][str(name)] += 1

    def count(self, group: str, name: str, times: int) -> None:
        """Add hits of a bin, which need not be declared."""
        self.bins.setdefault(group, Counter())[name] += times

    def holes(self) -> list[str]:
        return [f"{group}: {name}" for group, names in self.bins.items() for name, hits in names.items() if not hits]


@dataclass
class Report:
    """The tables of one simulation; `cycles` has a row per job without stalls."""

    coverage: Coverage = field(default_factory=Coverage)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    cycles: list[tuple[str, int, int]] = field(default_factory=list)
    most_outstanding: dict[str, int] = field(default_factory=dict)  # the most read bursts in flight, by bundle
    files: list[str] = field(default_factory=list)  # of this project that the simulation has read

    def take_marks(self, fifos: Iterable[Fifo]) -> None:
        self.marks = {fifo.name: (fifo.depth, fifo.high_water) for fifo in fifos}

    def save(self, folder: Path, head: Mapping[str, Any]) -> None:
        """report.json and report.md."""
        folder.mkdir(parents=True, exist_ok=True)
        everything = {
            **head,
            "coverage": self.coverage.bins,
            "fifos": [{"fifo": name, "depth": depth, "high_water": high} for name, (depth, high) in self.marks.items()],
            "files": self.files,
            "most_outstanding_reads": self.most_outstanding,
            "cycles": [
                {"job": label, "measured": measured, "stated": stated} for label, measured, stated in self.cycles
            ],
        }
        (folder / "report.json").write_text(json.dumps(everything, indent=1) + "\n")
        (folder / "report.md").write_text(self._markdown(head))

    def _markdown(self, head: Mapping[str, Any]) -> str:
        worst = sorted(self.cycles, key=lambda row: -abs(row[1] - row[2]) / row[2])[:10]
        covered = [(group, name, hits) for group, names in self.coverage.bins.items() for name, hits in names.items()]
        parts = [
            ", ".join(f"{name}: {value}" for name, value in head.items()) + "\n",
            "## FIFOs\n\n" + table(("FIFO", "depth", "high water"), [(k, *v) for k, v in self.marks.items()]),
            f"## Cycles: {len(self.cycles)} jobs without stalls, the worst first\n\n"
            + table(("job", "measured", "stated"), worst),
            "## Read bursts on their way at a time\n\n" + table(("bundle", "most"), self.most_outstanding.items()),
            "## Coverage\n\n" + table(("group", "bin", "hits"), covered),
        ]
        return "\n".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown, with numbers aligned to the right."""
    rows = list(rows)
    right = [bool(rows) and not isinstance(cell, str) for cell in (rows[0] if rows else head)]
    lines = [list(map(str, head)), ["--:" if one else "---" for one in right]]
    lines += [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
