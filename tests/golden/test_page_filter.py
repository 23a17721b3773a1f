"""Wanted rows of flash pages."""

import numpy as np
import pytest

from golden import abi, float64, page_filter
from golden.abi import Status

ROW_BYTES = range(abi.MIN_ROW_BYTES, abi.MAX_ROW_BYTES + 1, abi.ROW_BYTES_STEP)


@pytest.mark.parametrize("page_bytes", abi.FILTER_PAGE_BYTES)
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
@pytest.mark.parametrize("density", [0.0, 0.02, 0.5, 1.0])
def test_every_row_and_page_size(page_bytes, row_bytes, density):
    rng = np.random.default_rng([page_bytes, row_bytes, int(density * 100)])
    pages, per_page = 3, page_bytes // row_bytes
    data = rng.integers(0, 256, pages * page_bytes, dtype=np.uint8)
    for rows in (1, per_page, per_page + 1, pages * per_page - 1, pages * per_page):
        wanted = rng.random(rows) < density
        bitmap = np.packbits(wanted, bitorder="little")
        result = page_filter(data, bitmap, rows, row_bytes, page_bytes)
        expected, needed = float64.page_filter(data, wanted, row_bytes, page_bytes)
        assert result.status == 0
        np.testing.assert_array_equal(result.rows, expected)
        np.testing.assert_array_equal(result.page_needed, needed)
        assert (result.rows_seen, result.rows_kept) == (rows, int(wanted.sum()))


def test_bits_beyond_the_rows_are_not_wanted():
    data = np.arange(8192, dtype=np.uint32).astype(np.uint8)
    result = page_filter(data, np.full(64, 255, np.uint8), 3, 32, 4096)
    np.testing.assert_array_equal(result.rows, data[:96])
    assert (result.rows_seen, result.rows_kept, result.page_needed.tolist()) == (3, 3, [1, 0])


def test_padding_of_a_page_is_skipped():
    """96-byte rows: 42 per page, 64 bytes of padding."""
    data = np.zeros(8192, np.uint8)
    data[4032:4096] = 255
    data[4096:4192] = 7
    bitmap = np.zeros(16, np.uint8)
    bitmap[42 >> 3] = 1 << (42 & 7)
    result = page_filter(data, bitmap, 84, 96, 4096)
    assert result.rows.tolist() == [7] * 96
    assert result.page_needed.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("size", "rows", "row_bytes", "page_bytes", "status"),
    [
        (4096, 1, 0, 4096, Status.BAD_ROW_BYTES),
        (4096, 1, 48, 4096, Status.BAD_ROW_BYTES),
        (4096, 1, 544, 4096, Status.BAD_ROW_BYTES),
        (4096, 1, 64, 2048, Status.BAD_PAGE_BYTES),
        (4096, 1, 63, 12288, Status.BAD_ROW_BYTES | Status.BAD_PAGE_BYTES),
        (4096, 0, 64, 4096, Status.BAD_LENGTH),
        (4096, 65, 64, 4096, Status.BAD_LENGTH),
        (4095, 1, 64, 4096, Status.BAD_LENGTH),
        (0, 1, 64, 4096, Status.BAD_LENGTH),
    ],
)
def test_bad_sizes(size, rows, row_bytes, page_bytes, status):
    result = page_filter(np.ones(size, np.uint8), np.full(64, 255, np.uint8), rows, row_bytes, page_bytes)
    assert result.status == status
    assert (result.rows.size, result.rows_seen, result.rows_kept, result.page_needed.size) == (0, 0, 0, 0)


def test_wrong_arrays_raise():
    with pytest.raises(ValueError, match="pages"):
        page_filter(np.ones(4096, np.int8), np.full(64, 255, np.uint8), 1, 64, 4096)
    with pytest.raises(ValueError, match="bitmap"):
        page_filter(np.ones(4096, np.uint8), np.full(1, 255, np.uint8), 9, 64, 4096)
