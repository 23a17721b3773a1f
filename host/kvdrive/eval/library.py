"""Real text on any machine: the modules of the Python standard library, and which of them models/mini never saw."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LEFT_OUT = {"encodings", "pydoc_data", "site-packages", "dist-packages", "cjkencodings"}  # tables rather than text
_SMALLEST, _LARGEST = 1 << 10, 1 << 20  # bytes; smaller and larger modules are left out


@dataclass(frozen=True)
class Module:
    """One source file: `name` relative to the library, `text`."""

    name: str
    text: str


def library() -> Path:
    """The folder of this Python's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def module_names() -> list[str]:
    """Names of all modules with suitable text. They are sorted, so that neighbours belong to the same package."""
    root, found = library(), []
    for folder, inner, files in os.walk(root):
        inner[:] = set(inner) - _LEFT_OUT
        suitable = (Path(folder, name) for name in files if name.endswith(".py"))
        found += [one.relative_to(root) for one in suitable if _SMALLEST <= one.stat().st_size <= _LARGEST]
    return [str(name) for name in sorted(found)]


def read(name: str) -> Module:
    """The module `name`; bytes that are not UTF-8 become replacement characters."""
    return Module(name, (library() / name).read_text(encoding="utf-8", errors="replace"))


def is_held_out(name: str) -> bool:
    """One module in twenty, by the hash of its name: models/mini was never trained on it."""
    return _twentieth(name) == 0


def held_out_modules() -> list[Module]:
    """The modules that models/mini was never trained on, the longest first."""
    return _longest_first(name for name in module_names() if is_held_out(name))


def calibration_modules() -> list[Module]:
    """Another module in twenty, none of them held out, the longest first."""
    return _longest_first(name for name in module_names() if _twentieth(name) == 1)


def _twentieth(name: str) -> int:
    return hashlib.sha256(name.encode()).digest()[0] % 20


def _longest_first(names: Iterable[str]) -> list[Module]:
    return sorted(map(read, names), key=lambda module: (-len(module.text), module.name))
