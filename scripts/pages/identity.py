"""What does not count in the identity of a model, in docs/design/runtime.md, from `kvdrive.identity.harmless`."""

from __future__ import annotations

from pathlib import Path

from kvdrive.identity import harmless
from kvdrive.tree import ROOT
from pages.blocks import filled

PAGE = ROOT / "docs/design/runtime.md"
TABLES = (
    ("field of a configuration, or of a part of it", harmless.CONFIG),
    ("attribute of a model or module", harmless.MODULE),
    ("attribute of a module, while it is zero", harmless.ZEROS),
    ("module whose forward hooks only look", harmless.HOOKS),
    ("argument of a call", harmless.ARGUMENTS),
    ("module whose text is not hashed, with the modules in it", harmless.CODE),
    ("file in the folder of a model that vLLM computes with", harmless.FILES),
)


def lists() -> str:
    """A table for each kind of harmless thing."""
    parts = []
    for what, table in TABLES:
        rows = [f"| `{name}` | {why} |" for name, why in sorted(table.items())]
        parts.append("\n".join([f"| {what} | why |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def texts() -> dict[Path, str]:
    """The page with the lists of the code."""
    return {PAGE: filled(PAGE, {"harmless": lists()})}
