"""What `kvdrive eval` measured, from the tables of docs/results/quality.md."""

from __future__ import annotations

from dataclasses import dataclass

from kvdrive.tree import ROOT

PAGE = "docs/results/quality.md"


@dataclass(frozen=True)
class Evaluated:
    """A row. `bytes_read`: over those of exact attention."""

    bytes_read: float
    perplexity: float


def evaluated(model: str, context: int, policy: str, ratio: str = "1") -> Evaluated:
    """The row of "mini" or "smollm2". Raises ValueError where the page has none, FileNotFoundError without it."""
    mark = {"mini": "sweep"}.get(model, model)
    text = (ROOT / PAGE).read_text()
    table = text.partition(f"<!-- quality/{mark} -->")[2].partition("<!-- end -->")[0]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if cells[:3] == [f"{context:,}", policy, ratio]:
            return Evaluated(float(cells[4]), float(cells[6]))
    raise ValueError(f"{PAGE} has no row of {model}, {context} tokens, {policy} {ratio}: make bench SUITE=quality")
