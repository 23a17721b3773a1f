"""Cases of the page_filter kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import golden
from csim.vectors import Case
from golden.abi import FILTER_PAGE_BYTES, MAX_ROW_BYTES, MIN_ROW_BYTES, ROW_BYTES_STEP

NAME = "page_filter"

ROW_BYTES = range(MIN_ROW_BYTES, MAX_ROW_BYTES + 1, ROW_BYTES_STEP)
DENSITIES = {"empty": 0.0, "rare": 0.02, "half": 0.5, "dense": 0.95, "full": 1.0}


def cases(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """Every row size on every page size, with empty, full, alternating and random bitmaps; then refused jobs."""
    for page_bytes in FILTER_PAGE_BYTES:
        for row_bytes in ROW_BYTES:
            capacity = page_bytes // row_bytes
            for name, density in DENSITIES.items() if not small else [("half", 0.5)]:
                pages = int(rng.integers(1, 4))
                rows = int(rng.integers(1, pages * capacity + 1))
                wanted = rng.random(pages * capacity) < density
                yield _case(rng, name, wanted, pages, rows, row_bytes, page_bytes)
            alternating = np.arange(2 * capacity) % 2 == rng.integers(2)
            yield _case(rng, "alternating", alternating, 2, 2 * capacity, row_bytes, page_bytes)
            yield _case(rng, "refused", alternating, 2, 2 * capacity + 1, row_bytes, page_bytes)
    yield from _borders(rng)
    yield from _refused(rng)


def _borders(rng: np.random.Generator) -> Iterator[Case]:
    """Row counts around the borders of bitmap chunks and beats, with bits set beyond the count."""
    for rows in (1, 2, 15, 16, 17, 31, 32, 33, 511, 512, 513, 1023, 1024):
        pages = -(-rows // (4096 // 32)) + 1
        for row_bytes in (32, 64):
            pages_needed = -(-rows // (4096 // row_bytes)) + 1
            wanted = np.ones(pages_needed * 4096 // row_bytes, np.bool_)
            yield _case(rng, "bits beyond the count", wanted, max(pages, pages_needed), rows, row_bytes, 4096)


def _refused(rng: np.random.Generator) -> Iterator[Case]:
    for row_bytes in (0, -32, 16, 31, 33, 48, 511, 513, 544, 4096, -(2**31), 2**31 - 1):
        yield _case(rng, "refused", np.ones(512, np.bool_), 1, 1, row_bytes, 4096)
    for page_bytes in (0, -4096, 1, 64, 2048, 4095, 12288, 32768, -(2**31)):
        yield _case(rng, "refused", np.ones(512, np.bool_), 1, 1, 64, page_bytes)
        yield _case(rng, "refused", np.ones(512, np.bool_), 1, 1, 65, page_bytes)
    for pages, rows in ((1, 0), (1, -1), (1, 65), (3, 193), (0, 1), (0, 0), (1, 2**31 - 1), (1, -(2**31))):
        yield _case(rng, "refused", np.ones(512, np.bool_), pages, rows, 64, 4096)
    yield _case(rng, "refused", np.ones(512, np.bool_), 1, 9, 480, 4096)


def _case(
    rng: np.random.Generator, name: str, wanted: np.ndarray, count: int, rows: int, row_bytes: int, page_bytes: int
) -> Case:
    """One case. `wanted` has a flag per row, also for rows beyond `rows`; the bitmap has whole beats up to `rows`."""
    pages = rng.integers(0, 256, count * page_bytes if page_bytes in FILTER_PAGE_BYTES else 4096, np.uint8)
    bitmap = np.packbits(wanted, bitorder="little")
    bitmap = np.resize(
        np.append(bitmap, np.full(64, 255, np.uint8)), max(64 * -(-rows // 512), 0) if rows < 2**20 else 64
    )
    expected = golden.page_filter(pages, bitmap, rows, row_bytes, page_bytes)
    refused = expected.status != 0
    return [
        ("label", f"{name}: {count} pages of {page_bytes}, {rows} rows of {row_bytes}"),
        ("pages", pages),
        ("bitmap", bitmap),
        ("page_count", count),
        ("rows", rows),
        ("row_bytes", row_bytes),
        ("page_bytes", page_bytes),
        ("status", int(expected.status)),
        ("kept", expected.rows),
        ("page_needed", np.zeros(1, np.uint8) if refused else expected.page_needed),
        ("rows_seen", expected.rows_seen),
        ("rows_kept", expected.rows_kept),
    ]
