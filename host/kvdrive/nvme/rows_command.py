"""ATTN_SUBMIT_ROWS: the queries of several rows in one command, and their results under one ticket."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvdrive import abi
from kvdrive._native import crc32c
from kvdrive.nvme import wire
from kvdrive.nvme.commands import AttentionQuery, Bytes, Command
from kvdrive.nvme.entries import EntryLayout

_ROWS = EntryLayout(wire.AttnRows)
_ROW = struct.Struct("<8xIBBHI20xIBBBxHHHH4xI")  # wire.AttnRow
assert _ROW.size == wire.AttnRow.itemsize
_NOTHING = np.empty(0, np.uint8)


@dataclass(frozen=True)
class RowResult:
    """`status`: that of the row's ATTN_SUBMIT, or of its ATTN_FETCH; 0 on success. `data`: its result, for
    `attention_result`. `engine_status`: with JOB_REFUSED.
    """

    status: int
    engine_status: int
    data: Bytes


def attn_submit_rows(queries: Sequence[AttentionQuery]) -> Command:
    """ATTN_SUBMIT_ROWS of queries; the result is a ticket for `commands.fetch_bytes`.

    At most wire.MAX_ATTN_ROWS.
    """
    rows = b"".join([_row(one.fields, one.data.size) for one in queries])
    data = np.concatenate([np.frombuffer(rows, np.uint8), *(one.data for one in queries)])
    fields = {
        "opcode": abi.Opcode.ATTN_SUBMIT_ROWS,
        "nsid": abi.Namespace.CP,
        "rows": len(queries),
        "data_bytes": data.size,
        "crc32c": crc32c(data),
    }
    return Command(_ROWS.pack(fields), data)


def _row(query: dict[str, int], size: int) -> bytes:
    one = query.__getitem__
    return _ROW.pack(
        one("session"), one("head"), one("heads"), one("layer"), size, one("tokens"), one("mode"), one("group"),
        one("has_valid"), one("r"), one("k_top"), one("local"), one("inline_tokens"), one("scale_log2e"),
    )  # fmt: skip


def rows_bytes(results: Sequence[int]) -> int:
    """The most bytes that ATTN_FETCH returns for rows whose results have so many bytes."""
    return len(results) * wire.AttnRowResult.itemsize + sum(results)


def rows_result(data: Bytes, results: Sequence[int]) -> list[RowResult]:
    """The data of a successful ATTN_FETCH for rows whose results have so many bytes.

    Raises ValueError for sizes that are not those of the results.
    """
    at = len(results) * wire.AttnRowResult.itemsize
    found = []
    for (status, engine_status, size, _), expected in zip(
        data[:at].view(wire.AttnRowResult).tolist(), results, strict=True
    ):
        if size != (0 if status else expected) or at + size > data.size:
            raise ValueError(f"a row of {expected} bytes has {size}, with status {status:#x}")
        found.append(RowResult(status, engine_status, data[at : at + size] if size else _NOTHING))
        at += size
    return found
