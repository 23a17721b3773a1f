# SPDX-License-Identifier: Apache-2.0
"""All that a compilation of C++ reads, found without the compiler."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

_INCLUDE = re.compile(rb'^[ \t]*(?://)?[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)
_READS = re.compile(
    rb"(?:#|%:)(?:[ \t]|/\*.*?\*/)*(?:include|include_next|import|embed)\b|\b__has_include|\b__has_embed|\bincbin\b",
    re.DOTALL,
)


def all_texts(main: Path, folders: Sequence[Path]) -> list[str | bytes] | None:
    """The text of `main` and of all that it may include, each once, with their names; where they lie does not count.
    None if a text may read a file in another way than by a plain line `#include "name"`.

    `folders`: where headers are searched. What lies in none of them is the system's, and only its name is there.
    """
    found: dict[Path, int] = {}
    parts: list[str | bytes] = []

    def add(file: Path) -> bool:
        if file in found:
            parts.append(f"text {found[file]}")
            return True
        found[file] = len(found)
        text = file.read_bytes().replace(b"\r", b"").replace(b"\\\n", b"")
        lines = list(_INCLUDE.finditer(text))
        if len(lines) != len(_READS.findall(text)):
            return False
        names = [os.fsdecode(line[2]) for line in lines]
        parts.extend([file.name, _INCLUDE.sub(b"#include", text), *(Path(name).name for name in names)])
        return all(
            [
                add_included(name, [file.parent] if line[1] == b'"' else [])
                for name, line in zip(names, lines, strict=True)
            ]
        )

    def add_included(name: str, beside: list[Path]) -> bool:
        here = next((folder / name for folder in (*beside, *folders) if (folder / name).is_file()), None)
        if here is None:
            parts.append("system")
            return True
        return add(here.resolve())

    return parts if add(main) else None
