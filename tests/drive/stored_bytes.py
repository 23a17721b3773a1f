# SPDX-License-Identifier: Apache-2.0
"""Searches the bytes of a backing file, without its holes."""

from __future__ import annotations

import os
from pathlib import Path


def occurrences(path: Path, mark: bytes) -> int:
    """How often `mark` occurs in a sparse file."""
    found, at, end = 0, 0, path.stat().st_size
    with path.open("rb") as file:
        while at < end:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            found += file.read(at - start).count(mark)
    return found
