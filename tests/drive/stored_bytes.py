# SPDX-License-Identifier: Apache-2.0
"""The bytes of a backing file, without its holes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def occurrences(path: Path, mark: bytes) -> int:
    """How often `mark` occurs in a sparse file."""
    return sum(content.count(mark) for _, content in stored(path))


def place_of(path: Path, mark: bytes) -> int:
    """The first offset of `mark` in a sparse file. Raises StopIteration."""
    return next(start + content.index(mark) for start, content in stored(path) if mark in content)


def stored(path: Path) -> Iterator[tuple[int, bytes]]:
    """What a sparse file has, and at which offsets."""
    at, end = 0, path.stat().st_size
    with path.open("rb") as file:
        while at < end:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            yield start, file.read(at - start)
