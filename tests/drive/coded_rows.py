# SPDX-License-Identifier: Apache-2.0
"""Rows in 8 and 4 bits and in any format, by the native codec, which test_formats.py compares with the golden one."""

import numpy as np

from golden import formats
from kvdrive.nvme.rows import decoded, encoded
from kvdrive.nvme.wire import RowFormat

INTEGERS = {RowFormat.INT8: 8, RowFormat.INT4: 4}
FORMATS = {**INTEGERS, RowFormat.FP8: formats.FP8}


def encode(rows: np.ndarray, kind: RowFormat) -> np.ndarray:
    """float16 [heads, tokens, d] -> uint8 [heads, tokens, row_bytes]."""
    return encoded(rows, kind)


def decode(stored: np.ndarray, kind: RowFormat, d: int) -> np.ndarray:
    """uint8 [heads, tokens, row_bytes] -> float16 [heads, tokens, d]."""
    return formats.decode_rows(stored.reshape(-1, stored.shape[-1]), FORMATS[kind], d).reshape(*stored.shape[:2], d)


def as_stored(rows: np.ndarray, kind: RowFormat) -> tuple[np.ndarray, np.ndarray]:
    """float16 [heads, tokens, d] -> rows of any format as `append` takes them, and their float16 numbers."""
    if kind == RowFormat.BINARY16:
        return rows, rows
    stored = encode(rows, kind)
    return stored, decoded(stored, kind, rows.shape[-1])


def per_group(kind: RowFormat, d: int) -> int:
    """Tokens of a page."""
    return 4096 // formats.row_bytes(FORMATS[kind], d)
