"""The wanted rows of flash pages, in order and without gaps."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden import bitmap as bitmaps
from golden.abi import FILTER_PAGE_BYTES, MAX_ROW_BYTES, MIN_ROW_BYTES, ROW_BYTES_STEP, Status


@dataclass(frozen=True)
class FilterResult:
    """`rows` uint8: the kept rows one after the other; `page_needed` uint8 [pages], 1 where a page holds a wanted row.

    Arrays are empty and counts 0 unless status is 0.
    """

    status: Status
    rows: NDArray[np.uint8]
    rows_seen: int
    rows_kept: int
    page_needed: NDArray[np.uint8]


def page_filter(
    pages: NDArray[np.uint8], bitmap: NDArray[np.uint8], rows: int, row_bytes: int, page_bytes: int
) -> FilterResult:
    """Keep the first `rows` rows of `pages` (uint8, whole pages) whose bit in `bitmap` is set.

    BAD_ROW_BYTES, BAD_PAGE_BYTES: sizes outside the ABI. BAD_LENGTH: no rows, a part of a page, or more rows than the
    pages hold.
    """
    pages = np.asarray(pages)
    if pages.dtype != np.uint8 or pages.ndim != 1:
        raise ValueError("pages must be a one-dimensional uint8 array")
    status = _check(pages.size, rows, row_bytes, page_bytes)
    if status:
        return FilterResult(status, np.zeros(0, np.uint8), 0, 0, np.zeros(0, np.uint8))
    per_page = page_bytes // row_bytes
    content = pages.reshape(-1, page_bytes)[:, : per_page * row_bytes].reshape(-1, row_bytes)
    wanted = np.zeros(len(content), np.bool_)
    wanted[:rows] = bitmaps.to_flags(bitmap, rows)
    needed = np.asarray(wanted.reshape(-1, per_page).any(axis=1), np.uint8)
    return FilterResult(status, content[wanted].reshape(-1), rows, int(wanted.sum()), needed)


def _check(size: int, rows: int, row_bytes: int, page_bytes: int) -> Status:
    status = Status(0)
    if row_bytes % ROW_BYTES_STEP or not MIN_ROW_BYTES <= row_bytes <= MAX_ROW_BYTES:
        status |= Status.BAD_ROW_BYTES
    if page_bytes not in FILTER_PAGE_BYTES:
        status |= Status.BAD_PAGE_BYTES
    if status:
        return status
    capacity = size // page_bytes * (page_bytes // row_bytes)
    if size % page_bytes or not 1 <= rows <= capacity:
        status |= Status.BAD_LENGTH
    return status
