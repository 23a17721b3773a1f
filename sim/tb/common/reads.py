# SPDX-License-Identifier: Apache-2.0
"""The files of this project that a process has read: its modules, and what they open."""

from __future__ import annotations

import sys
from pathlib import Path

from rtl.kernels import ROOT

# What was made of the files that count, others' packages, and the compiler, whose part is the RTL.
_BESIDE = ("build/", "out/", ".venv/", "sim/openhls/")
_opened: set[str] = set()


def watch() -> None:
    """Note every file that is opened from now on."""

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            _opened.add(arguments[0])

    sys.addaudithook(note)


def project_files() -> list[str]:
    """Relative paths of modules in use and of files that were opened since `watch`."""
    modules = [module.__file__ for module in [*sys.modules.values()] if getattr(module, "__file__", None)]
    paths = {Path(path).resolve() for path in (*modules, *_opened) if path and not path.endswith(".pyc")}
    found = {path.relative_to(ROOT).as_posix() for path in paths if path.is_relative_to(ROOT) and path.is_file()}
    return sorted(path for path in found if not path.startswith(_BESIDE))
