"""Rows of K and V in the formats in which drives store them (docs/design/arithmetic.md, "Numbers at rest")."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive._native import decode_rows, encode_rows, row_bytes
from kvdrive.nvme.wire import RowFormat

Bytes = NDArray[np.uint8]
Halves = NDArray[np.float16]
_SHIFT = 8  # of the format in `append_options`, above the bits of abi.AppendOption


def joined(options: int, stored_as: RowFormat) -> int:
    """`append_options`: how the rows of a session are stored, as one number, which saved caches and the index hold.

    `options`: bits of abi.AppendOption.
    """
    return options | stored_as << _SHIFT


def format_of(append_options: int) -> RowFormat:
    """The format in `append_options`."""
    return RowFormat(append_options >> _SHIFT)


def command_options(append_options: int) -> int:
    """The bits of abi.AppendOption in `append_options`."""
    return append_options & ((1 << _SHIFT) - 1)


def bytes_of_row(stored_as: RowFormat, head_dim: int) -> int:
    """Bytes of one token's K or V of one head. Raises ValueError for dimensions that no head has."""
    return 2 * head_dim if stored_as == RowFormat.BINARY16 else row_bytes(stored_as, head_dim)


def largest_number(stored_as: RowFormat) -> float:
    """The largest magnitude that a format holds."""
    return 448.0 if stored_as == RowFormat.FP8 else 65504.0


def tokens_per_group(stored_as: RowFormat, head_dim: int) -> int:
    """Tokens of a group: the rows of a head that fit a page."""
    return max(1, abi.PAGE_BYTES // bytes_of_row(stored_as, head_dim))


def encoded(rows: Halves, stored_as: RowFormat) -> Bytes:
    """Rows [..., d] float16 as stored rows uint8 [..., bytes_of_row]. Rounds; values that are stored numbers stay."""
    halves = np.ascontiguousarray(rows)
    if stored_as == RowFormat.BINARY16:
        return halves.view(np.uint8)
    *shape, head_dim = rows.shape
    out = np.empty((*shape, row_bytes(stored_as, head_dim)), np.uint8)
    flat = halves.reshape(-1, head_dim).view(np.uint16)
    encode_rows(flat, stored_as, out.reshape(len(flat), -1))
    return out


def decoded(stored: Bytes, stored_as: RowFormat, head_dim: int) -> Halves:
    """Stored rows uint8 [..., bytes_of_row] as [..., d] float16."""
    if stored_as == RowFormat.BINARY16:
        return stored.view(np.float16)
    out = np.empty((*stored.shape[:-1], head_dim), np.float16)
    flat = np.ascontiguousarray(stored).reshape(-1, stored.shape[-1])
    decode_rows(flat, stored_as, out.reshape(len(flat), head_dim).view(np.uint16))
    return out


def rounded(rows: Halves, stored_as: RowFormat) -> Halves:
    """Rows [..., d] with the values that they have once they are stored."""
    if stored_as == RowFormat.BINARY16:
        return rows
    return decoded(encoded(rows, stored_as), stored_as, rows.shape[-1])
