"""The tables of docs/reference/requests.md, from those that the server checks requests with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from kvdrive.server.fields import Fields, nested, says_of
from kvdrive.server.protocol import HARMLESS, NEUTRAL, NO_CANDIDATES, NO_CHAT, NO_TOOLS
from kvdrive.server.requests import REQUESTS
from kvdrive.tree import ROOT
from pages import features
from pages.blocks import filled

PAGE = ROOT / "docs/reference/requests.md"


def texts() -> dict[Path, str]:
    """The page with the fields that are checked."""
    blocks = {"implemented": implemented(), "neutral": neutral(), "harmless": harmless(), "features": features.table()}
    return {PAGE: filled(PAGE, blocks)}


def implemented() -> str:
    """The fields that each kind of request implements; what both completions have stands once."""
    of = {str(kind.__doc__): list(rows(kind, "")) for kind in REQUESTS}
    for kind in REQUESTS[2:]:  # what the first two accept beside their fields has tables of its own
        of[str(kind.__doc__)] += [
            f"| `{name}` | {accepted(values)} only | not implemented |" for name, values in kind.neutral.items()
        ]
        of[str(kind.__doc__)] += [f"| `{name}` | anything | {why} |" for name, why in kind.harmless.items()]
    first, second = list(of)[:2]
    both = [row for row in of[first] if row in of[second]]
    parts = {"Both kinds of completions:": both}
    parts |= {what: [row for row in lines if row not in both] for what, lines in of.items()}
    return "\n\n".join(section(what, lines) for what, lines in parts.items())


def section(what: str, lines: list[str]) -> str:
    """A table."""
    return "\n".join([f"**{what}**", "", "| Field | Is | For |", "|---|---|---|", *lines])


def rows(kind: type[Fields], before: str) -> Iterator[str]:
    """A line for each field; `before`: where the object is."""
    for name, field in kind.known().items():
        says = says_of(field)
        needed = " (needed)" if field.is_required() else ""
        yield f"| `{before}{name}`{needed} | {says.takes} | {says.does} |"
        if inner := nested(field):
            inside = f"{before}{name}{'.' if 'list' not in str(field.annotation) else '[].'}"
            yield from rows(inner, inside)
            for one, values in inner.neutral.items():
                yield f"| `{inside}{one}` | {accepted(values)} only | not implemented |"


def neutral() -> str:
    """The fields that are accepted with values that change nothing."""
    lines = [f"| `{name}` | {accepted(values)} |" for name, values in NEUTRAL.items()]
    lines += [f"| `{name}` of a completion | {accepted(values)} |" for name, values in (NO_TOOLS | NO_CHAT).items()]
    lines += [f"| `{name}` of a chat | {accepted(values)} |" for name, values in NO_CANDIDATES.items()]
    return "\n".join(["| Field | Accepted |", "|---|---|", *lines])


def harmless() -> str:
    """The fields that are accepted with any value."""
    lines = [f"| `{name}` | {why} |" for name, why in HARMLESS.items()]
    return "\n".join(["| Field | Is for |", "|---|---|", *lines])


def accepted(values: tuple[object, ...]) -> str:
    """The values of a field that changes nothing, null included."""
    return ", ".join(f"`{json.dumps(value)}`" for value in (*values, None))
