# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of the Python packages that pyproject.toml pins in its extras `ecp5` and `gowin`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from openhls.cosim.simulate import ToolError


class Stopped(ToolError):
    """A tool could not do it: the design does not fit, say."""


def package_version(name: str) -> str:
    """Raises ToolError if the package is not installed."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        raise ToolError(f"the package {name} is missing: run `make link PLATFORM=...`, which installs it") from None


def run(command: Sequence[str], folder: Path, minutes: float | None = None) -> str:
    """A program of this Python environment, in `folder`; it sees files below it only, by relative names.

    Returns what it said. Raises Stopped if it fails, with the end of that, or has not ended after `minutes`.
    """
    program = Path(sys.executable).parent / command[0]
    if not program.exists():
        raise ToolError(f"{command[0]} is missing: run `make link PLATFORM=...`, which installs it")
    log = folder / f"{command[0]}.log"
    with log.open("w") as output:
        try:
            limit = None if minutes is None else 60 * minutes
            done = subprocess.run(
                [program, *command[1:]], cwd=folder, stdout=output, stderr=subprocess.STDOUT, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired:
            raise Stopped(f"{command[0]} has not ended after {minutes:g} minutes") from None
    said = log.read_text()
    if done.returncode != 0:
        raise Stopped(f"{command[0]} failed\n{said[-4000:].strip()}")
    return said
