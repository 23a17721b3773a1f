"""Tables of results, as pages show them and as files keep them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Table:
    """Cells as text. `align`: "l" or "r" for each column; empty: all but the first to the right.

    `legend`: the sentence above, which says what brackets mean. `note`: the paragraphs below. Without columns only
    `note` is shown.
    """

    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    note: str = ""
    legend: str = ""
    title: str = ""
    align: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.head)]
        if wrong:
            raise ValueError(f"a row has {len(wrong[0])} cells, the table {len(self.head)} columns: {wrong[0]}")

    def text(self) -> str:
        """As Markdown."""
        parts = [f"### {self.title}" if self.title else "", self.legend]
        if self.head:
            align = self.align or "l" + "r" * (len(self.head) - 1)
            rule = ["---:" if side == "r" else "---" for side in align]
            parts.append("\n".join("| " + " | ".join(row) + " |" for row in (self.head, rule, *self.rows)))
        return "\n\n".join(filter(None, [*parts, self.note]))

    def as_dict(self) -> dict[str, Any]:
        """For a file, without what is empty."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class Block:
    """A generated part of a page: tables that were measured together, and the `figures` that they were made of."""

    name: str
    tables: Sequence[Table]
    figures: Any = None


def of_dict(kept: dict[str, Any]) -> Table:
    """A table of a file."""
    return Table(**{field.name: kept[field.name] for field in fields(Table) if field.name in kept})


def milliseconds(seconds: float) -> str:
    """A cell."""
    return f"{seconds * 1e3:,.0f}" if seconds > 0.1 else f"{seconds * 1e3:.3g}"
