"""Queries of several rows in flight to a drive: one command for all, or one each where it takes no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvdrive import abi
from kvdrive.errors import TargetError
from kvdrive.nvme.commands import AttentionQuery, Bytes, fetch_bytes
from kvdrive.nvme.errors import CommandError
from kvdrive.nvme.rows_command import RowResult, attn_submit_rows, rows_bytes, rows_result
from kvdrive.nvme.wire import AttnRow
from kvdrive.targets.base import Target

_UNKNOWN = (abi.NvmeStatus.INVALID_OPCODE, abi.NvmeStatus.INVALID_NAMESPACE)


def in_rows(target: Target, queries: Sequence[AttentionQuery], sizes: Sequence[int]) -> list[Bytes] | None:
    """The results, of `sizes` bytes, of queries that are sent as the rows of few commands.

    None where there is nothing to gain, or where the drive does not know the command, which is remembered. Raises
    CommandError once all results are fetched, TargetError.
    """
    parts = list(_parts(queries, sizes, target.rows_at_once, target.max_transfer_bytes))
    if len(parts) == len(queries):
        return None
    submitted = target.submit_many([attn_submit_rows(queries[part]) for part in parts])
    if any(done.status in _UNKNOWN for done in submitted):
        target.rows_at_once = 1
        return None
    accepted = [(done.result, sizes[part]) for done, part in zip(submitted, parts, strict=True) if not done.status]
    fetched = target.submit_many([fetch_bytes(ticket, rows_bytes(part)) for ticket, part in accepted])
    for done in submitted:
        done.check(abi.Opcode.ATTN_SUBMIT_ROWS)
    rows: list[RowResult] = []
    for done, (_, part) in zip(fetched, accepted, strict=True):
        try:
            rows += rows_result(done.check(abi.Opcode.ATTN_FETCH).data, part)
        except ValueError as error:
            raise TargetError(f"the drive answered several rows wrongly: {error}") from error
    for row in rows:
        if row.status:
            raise CommandError(abi.Opcode.ATTN_SUBMIT_ROWS, row.status, row.engine_status, retry=False)
    return [row.data for row in rows]


def singly(target: Target, queries: Sequence[AttentionQuery], sizes: Sequence[int]) -> list[Bytes]:
    """The results, of `sizes` bytes, of queries that are commands of their own, with many in flight.

    Raises CommandError once all results are fetched, TargetError.
    """
    if len(queries) == 1:
        return [target.ask(queries[0].command(), sizes[0])]
    submitted = target.submit_many([one.command() for one in queries])
    accepted = [(done.result, size) for done, size in zip(submitted, sizes, strict=True) if not done.status]
    fetched = target.submit_many([fetch_bytes(ticket, size) for ticket, size in accepted])
    for done in submitted:
        done.check(abi.Opcode.ATTN_SUBMIT)
    return [done.check(abi.Opcode.ATTN_FETCH).data for done in fetched]


def _parts(queries: Sequence[AttentionQuery], sizes: Sequence[int], most: int, most_bytes: int) -> Iterator[slice]:
    """Neighbours that fit one command: so many rows, so many bytes of data and of results."""
    first = sent = received = 0
    for index, (query, size) in enumerate(zip(queries, sizes, strict=True)):
        out = AttnRow.itemsize + query.data.size
        back = rows_bytes([size])
        if index > first and (index - first >= most or max(sent + out, received + back) > most_bytes):
            yield slice(first, index)
            first, sent, received = index, 0, 0
        sent, received = sent + out, received + back
    yield slice(first, len(queries))
