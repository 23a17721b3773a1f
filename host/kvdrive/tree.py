"""The project's files beside the package: kernels, the tools that turn them into RTL, the golden model, a small model.

In a source tree they lie where they are written. A wheel carries those that its commands need in `kvdrive/_tree`, laid
out the same way, so that no other top-level name than `kvdrive` gets into an environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGED = Path(__file__).resolve().parent / "_tree"
ROOT = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).resolve().parents[2]


def use_tools() -> None:
    """From now on `golden`, `openhls` and `rtl` can be imported, behind everything else of these names."""
    folder = str(ROOT / "sim")
    if folder not in sys.path:
        sys.path.append(folder)


def openhls() -> None:
    """Entry point of the command `openhls`: C++ to SystemVerilog."""
    use_tools()
    from openhls.cli import main

    sys.exit(main())
