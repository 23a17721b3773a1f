"""All options, and which exclude each other, in docs/options.md, from the fields and `kvdrive.config.table`."""

from __future__ import annotations

from pathlib import Path

from kvdrive.cli.fields import with_flags
from kvdrive.config.abilities import Ability, Part
from kvdrive.config.resolve import part_of
from kvdrive.config.table import EVERY, NO_FOLDER
from kvdrive.config.text import OPTIONS
from kvdrive.policies import POLICIES, make_policy
from kvdrive.tree import ROOT
from pages.blocks import filled

PAGE = ROOT / "docs/reference/options.md"


def options() -> str:
    """A row for each option that commands have."""
    rows = ["| Field | Flag | Default | Meaning |", "|---|---|---|---|"]
    for name, (_, one, about) in OPTIONS.items():
        default = about.default(one)
        shown = "" if default in (None, "") or default is False else f"`{default}`"
        meaning = about.help.replace("|", "\\|")
        rows.append(f"| `{name}` | `{with_flags(f'`{name}`')}` | {shown} | {meaning} |")
    return "\n".join(rows)


def exclusions() -> str:
    """A row for each thing that an option needs: which others do not have it, and why."""
    known = (*EVERY, NO_FOLDER, *(part_of(make_policy(name)) for name in POLICIES))
    rows = ["| Field | Flag | Does not go with | Because |", "|---|---|---|---|"]
    for part in known:
        for ability, reason in part.requires.items():
            reasons: dict[str, list[str]] = {}
            for other in _without(ability, known):
                reasons.setdefault(other.lacks.get(ability, reason), []).append(str(other))
            for why, others in reasons.items():
                rows.append(f"| {part} | `{with_flags(str(part))}` | {', '.join(others)} | {why} |")
    return "\n".join(rows)


def model_needs() -> str:
    """A row for each thing that only the model can say."""
    rows = ["| Field | Flag | Goes with models of which |", "|---|---|---|"]
    for part in EVERY:
        for ability in part.requires:
            if "model" in ability.asked:
                rows.append(f"| {part} | `{with_flags(str(part))}` | {ability.value[0]} |")
    return "\n".join(rows)


def _without(ability: Ability, known: tuple[Part, ...]) -> list[Part]:
    return [one for one in known if one.option in ability.asked and ability not in one.provides]


def texts() -> dict[Path, str]:
    """The page with the tables of the code."""
    return {PAGE: filled(PAGE, {"options": options(), "exclusions": exclusions(), "models": model_needs()})}
