# SPDX-License-Identifier: Apache-2.0
"""A project to begin with: a kernel, its testbench and their description, from the files of `project/`."""

from __future__ import annotations

import re
from pathlib import Path

from openhls.errors import OpenHlsError
from openhls.names import KEYWORDS

_FILES = Path(__file__).parent / "project"
_WORDS = """
asm auto bool catch char constexpr decltype delete double explicit expected factor false float friend goto half in
inline hls kMost kernel_tb length lengths load long main mutable n namespace noexcept nullptr numbers operator out
printf private products public scale short sizeof std store switch template throw true try typeid typename using
volatile
"""
_TAKEN = frozenset(_WORDS.split())  # by C++ and by the files themselves, beside what SystemVerilog takes


def make_project(folder: Path) -> list[Path]:
    """Writes a project whose kernel has the name of its folder. Raises OpenHlsError for a name that C++ or
    SystemVerilog does not take, and where there is something already."""
    name = folder.name
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or "__" in name or name in KEYWORDS | _TAKEN:
        raise OpenHlsError(f"{name} is no name for a kernel: take letters, digits and _, and no word of a language")
    if folder.exists():
        raise OpenHlsError(f"{folder} is there already: take another name, or remove it")
    folder.mkdir(parents=True)
    written = []
    for file in sorted(_FILES.iterdir()):
        path = folder / file.name.replace("kernel", name)
        text = re.sub(r"\bkernel(?=\(|\.|_tb\b|$)", name, file.read_text(), flags=re.MULTILINE)
        path.write_text(text)
        written.append(path)
    return written
