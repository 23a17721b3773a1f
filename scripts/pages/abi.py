"""The layouts of jobs in docs/reference/jobs.md, from abi/abi.toml and the comments in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kvdrive.tree import ROOT
from pages.blocks import filled

PAGE, ABI = ROOT / "docs/reference/jobs.md", ROOT / "abi/abi.toml"
STRUCTS = ("AttentionJob", "AttentionResult", "GroupChoiceJob", "GroupChoiceResult")
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "f32": 4}
_FIELD = re.compile(r'"(\w+):(\w+)(?::(\d+))?"')


def layout(name: str, text: str) -> Iterator[str]:
    """A table of a struct: each line of abi.toml is a row, with its comment."""
    part = re.split(rf"^\[(?:\w+\.)?structs\.{name}\]", text, flags=re.M)[1].partition("\n]")[0]
    size = re.search(r"^bytes = (\d+)", part, re.M)
    yield from (f"**{name}**, {size[1] if size else ''} bytes:", "", "| Bytes | Field | Meaning |", "|---|---|---|")
    at = 0
    for line in part.splitlines():
        fields = _FIELD.findall(line)
        meaning = line.partition("#")[2].strip().replace("|", "\\|") if fields else ""
        for field, kind, count in fields:
            many, first = int(count or 1), at
            at += SIZES[kind] * many
            if not field.startswith("reserved"):
                place = f"{first}-{at - 1}" if at - first > 1 else str(first)
                yield f"| {place} | `{field}`: {kind}{f' x {many}' if many > 1 else ''} | {meaning} |"
    if not size or at != int(size[1]):
        raise ValueError(f"the fields of {name} take {at} bytes")


def layouts() -> str:
    """The tables of all jobs and their results."""
    text = ABI.read_text()
    return "\n\n".join("\n".join(layout(name, text)) for name in STRUCTS)


def texts() -> dict[Path, str]:
    """The page with the layouts."""
    return {PAGE: filled(PAGE, {"layouts": layouts()})}
