"""Locates the project's files outside the package: kernels, tools that make RTL, the golden model, a small model.

In a source tree they are at their usual places. A wheel has those that its commands need in `kvdrive/_tree`, with the
same layout, so that it installs no other top-level name than `kvdrive`.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGED = Path(__file__).resolve().parent / "_tree"
ROOT = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).resolve().parents[2]


def use_tools() -> None:
    """Make `golden`, `openhls` and `rtl` importable. Installed packages of the same names take precedence."""
    folder = str(ROOT / "sim")
    if folder not in sys.path:
        sys.path.append(folder)


def openhls() -> None:
    """Entry point of the command `openhls`: C++ to SystemVerilog."""
    use_tools()
    from openhls.cli import run

    run()
