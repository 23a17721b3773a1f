# SPDX-License-Identifier: Apache-2.0
"""A drive's file as bytes on a disk: the places of its parts, and ways to damage single pages."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import numpy as np

from kvdrive._native import crc32c

PAGE, SECTOR, STAMP, SUPERBLOCK = 4096, 512, 8, 128
JOURNAL = 2 * PAGE
MIX = 0x9E3779B97F4A7C15
DAMAGES = ("bit", "sector", "zeros", "noise")


def superblock(path: Path, copy: int = 0) -> dict[str, int]:
    """Fields of one copy of the superblock, even if its checksum is wrong."""
    with path.open("rb") as file:
        file.seek(copy * PAGE)
        fields = struct.unpack_from("<8sIIQQQQQQ", file.read(PAGE))
    names = ("version", "unit", "generation", "salt", "snapshot", "durable", "capacity", "half")
    return dict(zip(names, fields[1:], strict=True))


def journal_start(path: Path) -> int:
    """Offset of the half of the journal that is in use."""
    current = max((superblock(path, copy) for copy in range(2)), key=lambda found: found["generation"])
    return JOURNAL + (current["generation"] & 1) * current["half"]


def transactions(path: Path) -> list[tuple[int, int]]:
    """Offset and number of pages of each transaction in that half, from its first page."""
    current = max((superblock(path, copy) for copy in range(2)), key=lambda found: found["generation"])
    found, offset = [], journal_start(path)
    with path.open("rb") as file:
        while True:
            file.seek(offset)
            page = file.read(SECTOR)
            (stamp,) = struct.unpack_from("<Q", page)
            if stamp != current["salt"] ^ (len(found) + 1) * MIX & (1 << 64) - 1:
                return found
            _, _, number, pages = struct.unpack_from("<QQII", page, STAMP)
            assert number == 0
            found.append((offset, pages))
            offset += pages * PAGE


def damage(path: Path, page: int, kind: str, rng: np.random.Generator, within: int = PAGE) -> bytes:
    """Damage the first `within` bytes of the page at offset `page`, as DAMAGES lists. Returns the old page."""
    with path.open("r+b") as file:
        file.seek(page)
        old = file.read(PAGE)
        new = bytearray(old)
        if kind == "bit":
            new[rng.integers(within)] ^= 1 << int(rng.integers(8))
        elif kind == "sector":
            at = int(rng.integers(-(-within // SECTOR))) * SECTOR
            new[at : at + SECTOR] = rng.bytes(SECTOR)
        else:
            new[:] = bytes(PAGE) if kind == "zeros" else rng.bytes(PAGE)
        file.seek(page)
        file.write(new)
    return old


def forge(path: Path, old: bytes, at: int, new: bytes) -> None:
    """Write `new` at byte `at` of the first `old` in a page of the journal, and the page's checksum."""
    header = STAMP + 32  # the last four bytes are the checksum
    for start, pages in transactions(path):
        for offset in range(start, start + pages * PAGE, PAGE):
            with path.open("r+b") as file:
                file.seek(offset)
                page = np.frombuffer(bytearray(file.read(PAGE)), np.uint8)
                places = np.array([i for i in range(header, PAGE) if i % SECTOR >= STAMP])
                found = page[places].tobytes().find(old)
                if found < 0:
                    continue
                page[places[found + at : found + at + len(new)]] = np.frombuffer(new, np.uint8)
                page[header - 4 : header] = 0
                page[header - 4 : header] = np.frombuffer(struct.pack("<I", crc32c(page)), np.uint8)
                file.seek(offset)
                file.write(page.tobytes())
                return
    raise AssertionError("no page of the journal holds these bytes")


def head_of(path: Path, size: int) -> bytes:
    """The first `size` bytes."""
    with path.open("rb") as file:
        return file.read(size)


def put(path: Path, offset: int, contents: bytes) -> None:
    """Write bytes into the file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(contents)


def copy(source: Path, target: Path) -> Path:
    """A copy with the same holes."""
    subprocess.run(["cp", "--sparse=always", source, target], check=True)
    return target


def written_pages(path: Path, start: int, end: int) -> list[int]:
    """Offsets of the pages in [start, end) that are not holes."""
    pages: list[int] = []
    with path.open("rb") as file:
        at = start
        while at < end:
            try:
                first = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            if first >= end:
                break
            at = os.lseek(file.fileno(), first, os.SEEK_HOLE)
            pages.extend(range(first // PAGE * PAGE, min(at, end), PAGE))
    return pages
