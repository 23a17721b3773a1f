# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of the Python packages that pyproject.toml pins in its extras `ecp5` and `gowin`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from openhls.backend.simulate import ToolError


def package_version(name: str) -> str:
    """Raises ToolError if the package is not installed."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        raise ToolError(f"the package {name} is missing: run `make link PLATFORM=...`, which installs it") from None


def run(command: Sequence[str], folder: Path) -> str:
    """A program of this Python environment, in `folder`; it sees files below it only, by relative names.

    Returns what it said. Raises ToolError with the end of that if it fails.
    """
    program = Path(sys.executable).parent / command[0]
    if not program.exists():
        raise ToolError(f"{command[0]} is missing: run `make link PLATFORM=...`, which installs it")
    done = subprocess.run(
        [program, *command[1:]], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    (folder / f"{command[0]}.log").write_text(done.stdout)
    if done.returncode != 0:
        raise ToolError(f"{command[0]} failed in {folder}\n{done.stdout[-4000:].strip()}")
    return done.stdout
