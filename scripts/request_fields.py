"""Write the tables of docs/requests.md from the tables that the server checks requests with.

`--check` writes nothing; exit code 1 says that the page is not current.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from kvdrive.server.fields import Fields, nested, says_of
from kvdrive.server.protocol import HARMLESS, NEUTRAL, REQUESTS
from page_blocks import filled

PAGE = Path(__file__).resolve().parent.parent / "docs/requests.md"


def main() -> int:
    """Exit code 1 when `--check` finds another page."""
    new = filled(
        PAGE, {"implemented": "\n\n".join(map(section, REQUESTS)), "neutral": neutral(), "harmless": harmless()}
    )
    if "--check" in sys.argv[1:]:
        old = PAGE.read_text()
        if old != new:
            print("docs/requests.md is not current: make request-fields")
        return int(old != new)
    PAGE.write_text(new)
    return 0


def section(kind: type[Fields]) -> str:
    """The fields that a kind of request implements, those of the objects in it included."""
    head = f"**{kind.__doc__}**\n\n| Field | Is | For |\n|---|---|---|"
    return "\n".join([head, *rows(kind, "")])


def rows(kind: type[Fields], before: str) -> Iterator[str]:
    """A line for each field; `before`: where the object is."""
    for name, field in kind.model_fields.items():
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
    return "\n".join(["| Field | Accepted |", "|---|---|", *lines])


def harmless() -> str:
    """The fields that are accepted with any value."""
    lines = [f"| `{name}` | {why} |" for name, why in HARMLESS.items()]
    return "\n".join(["| Field | Is for |", "|---|---|", *lines])


def accepted(values: tuple[object, ...]) -> str:
    """The values of a field that changes nothing, null included."""
    return ", ".join(f"`{json.dumps(value)}`" for value in (*values, None))


if __name__ == "__main__":
    sys.exit(main())
