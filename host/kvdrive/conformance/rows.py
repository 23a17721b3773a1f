"""Checks of ATTN_SUBMIT_ROWS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kvdrive import abi
from kvdrive.conformance.bench import Bench, Bytes, MismatchError, Stored, status_name, with_fields
from kvdrive.conformance.device import Ability
from kvdrive.conformance.queries import Query, compare, exact, holds
from kvdrive.conformance.sessions import SMALLER
from kvdrive.conformance.suite import check
from kvdrive.nvme import commands, namespaces, wire
from kvdrive.nvme.commands import AttentionQuery
from kvdrive.nvme.rows_command import RowResult, attn_submit_rows, rows_bytes, rows_result

SPARSE, GROUPS = int(abi.AppendOption.APPEND_SPARSE), int(abi.AppendOption.APPEND_GROUPS)


def sizes_of(queries: Sequence[Query]) -> list[int]:
    """Bytes of the results of queries."""
    shapes = [(*one.q.shape, one.mode) for one in queries]
    return [commands.result_bytes(heads, group, d, mode) for heads, group, d, mode in shapes]


def ask_rows(bench: Bench, queries: Sequence[Query], rows: Sequence[AttentionQuery]) -> list[RowResult]:
    """Submit the queries, as the commands `rows` say, and fetch their results."""
    ticket = bench.ok(attn_submit_rows(rows)).result
    sizes = sizes_of(queries)
    return _rows(bench.ok(commands.fetch_bytes(ticket, rows_bytes(sizes))).data, sizes)


def _rows(data: Bytes, sizes: Sequence[int]) -> list[RowResult]:
    try:
        return rows_result(data, sizes)
    except ValueError as error:
        raise MismatchError(str(error)) from error


def _with(query: AttentionQuery, **fields: int) -> AttentionQuery:
    return replace(query, fields=query.fields | fields)


def _mixed(bench: Bench) -> tuple[list[Stored], list[Query]]:
    """Queries of all modes to sessions of different lengths, head dimensions, options and formats."""
    stored = [
        bench.store(tokens=75),
        bench.store(tokens=600, d=128, heads=1),
        bench.store(tokens=300, options=SPARSE),
        bench.store(tokens=300, options=GROUPS),
        bench.store(tokens=33, d=32, heads=3),
        *(bench.store(tokens=150, stored_as=one) for one in SMALLER),
        *(bench.store(tokens=300, options=SPARSE, stored_as=one) for one in SMALLER),
    ]
    scores = bench.rng.integers(-8 << 20, 8 << 20, (3, 2, 5)).astype(np.int32)
    valid = bench.rng.random(601) < 0.6
    valid[0] = True
    queries = [
        exact(bench, stored[0]),
        Query(bench.halves(1, 4, 128), 599, valid=valid[:599]),
        Query(bench.halves(2, 4, 64), 300, mode=abi.Mode.SPARF_ATTEND, r=6, k_top=25, local=4),
        Query(bench.halves(2, 4, 64), 300, mode=abi.Mode.GROUPS, r=32, k_top=3),
        Query(bench.halves(3, 2, 32), 33, mode=abi.Mode.PARTIAL, inline_scores=scores, inline_v=bench.halves(3, 5, 32)),
        *(Query(bench.halves(2, 3, 64), 150 - at) for at in range(len(SMALLER))),
        *(Query(bench.halves(2, 3, 64), 300, mode=abi.Mode.SPARF_ATTEND, r=6, k_top=25, local=4) for _ in SMALLER),
    ]
    return stored, queries


@check("ATTN_SUBMIT_ROWS", "rows of any sessions, lengths and modes have the golden model's bits, in any number")
def _(bench: Bench) -> None:
    stored, queries = _mixed(bench)
    for count in (1, len(queries), wire.MAX_ATTN_ROWS):
        chosen = [(at * 3 + count) % len(queries) for at in range(count)]
        asked = [queries[at] for at in chosen]
        found = ask_rows(bench, asked, [queries[at].of(stored[at].number) for at in chosen])
        for at, row in zip(chosen[: len(queries)], found, strict=False):
            bench.same("the status of a row", status_name(row.status), "SUCCESS")
            compare(bench, stored[at], queries[at], row.data)


@check("ATTN_SUBMIT_ROWS", "a row that fails says why, and the others have their bits")
def _(bench: Bench) -> None:
    stored = bench.store()
    query = exact(bench, stored)
    infinite = query.q.copy()
    infinite[0, 1, 5] = np.inf
    good = query.of(stored.number)
    failing = [
        ("INVALID_FIELD", _with(query.of(stored.number), mode=255)),
        ("INVALID_FIELD", _with(query.of(stored.number), r=1)),
        ("UNKNOWN_SESSION", _with(query.of(stored.number), session=bench.session())),
        ("TOKENS_MISSING", _with(query.of(stored.number), tokens=query.tokens + 1)),
        ("DATA_LENGTH", _with(query.of(stored.number), has_valid=1)),
        ("NO_VALID_TOKEN", replace(query, valid=np.zeros(query.tokens, np.bool_)).of(stored.number)),
        ("VALUE_NOT_FINITE", replace(query, q=infinite).of(stored.number)),
        ("JOB_REFUSED", _with(query.of(stored.number), scale_log2e=0x7F800000)),
    ]
    rows = [good, *(row for _, bad in failing for row in (bad, good))]
    found = ask_rows(bench, [query] * len(rows), rows)
    for row in found[::2]:
        compare(bench, stored, query, row.data)
    statuses = [(status_name(row.status), row.data.size) for row in found[1::2]]
    bench.same("the statuses of rows", statuses, [(status, 0) for status, _ in failing])
    bench.same("the engine's status word", found[-2].engine_status, int(abi.Status.BAD_SCALE))


@check("ATTN_SUBMIT_ROWS", "wrong numbers of rows and bytes are refused and keep no result")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=3, heads=1)
    query = exact(bench, stored, 1)
    rows = attn_submit_rows([query.of(stored.number)] * 3)
    assert rows.data is not None
    refused: list[tuple[str, dict[str, int]]] = [
        ("INVALID_FIELD", {"rows": 0}),
        ("INVALID_FIELD", {"rows": 2}),
        ("INVALID_FIELD", {"rows": 4}),
        ("INVALID_FIELD", {"rows": wire.MAX_ATTN_ROWS + 1}),
        ("INVALID_FIELD", {"rows": 0xFFFFFFFF}),
        ("CRC_MISMATCH", {"crc32c": 0}),
    ]
    for status, fields in refused:
        bench.refused(status, with_fields(rows, wire.AttnRows, **fields))
    bench.refused("INVALID_FIELD", with_fields(rows, cdw2=1))
    bench.refused("INVALID_FIELD", with_fields(rows, cdw15=1))
    for size in (0, 127, 129, 0xFFFFFFFF):
        data = rows.data.copy()
        data[: wire.AttnRow.itemsize].view(wire.AttnRow)["data_bytes"] = size
        bench.refused("INVALID_FIELD", replace(rows, data=data))
    ticket = bench.ok(rows).result
    size = rows_bytes(sizes_of([query] * 3))
    bench.refused("DATA_LENGTH", commands.fetch_bytes(ticket, size - 4))
    found = bench.ok(commands.fetch_bytes(ticket, size + 64)).data[:size]
    for row in _rows(found, sizes_of([query] * 3)):
        compare(bench, stored, query, row.data)
    bench.refused("UNKNOWN_TICKET", commands.fetch_bytes(ticket, size))


@check("ATTN_SUBMIT_ROWS", "each row counts as a result that waits, and more than the drive keeps are refused")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=3, heads=1)
    query = exact(bench, stored, 1)
    many = attn_submit_rows([query.of(stored.number)] * wire.MAX_ATTN_ROWS)
    size = rows_bytes(sizes_of([query] * wire.MAX_ATTN_ROWS))
    tickets: list[int] = []
    try:
        while (done := bench.send(many)).status == 0 and len(tickets) < wire.MAX_ATTN_ROWS:
            tickets.append(done.result)
        bench.same("different tickets", len(set(tickets)), len(tickets))
        if len(tickets) < wire.MAX_ATTN_ROWS:
            bench.same("the status of one more", status_name(done.status), "TICKETS_EXHAUSTED")
            bench.same("retrying it", done.retry, True)
            bench.ok(commands.fetch_bytes(tickets.pop(), size))
            tickets.append(bench.ok(many).result)
    finally:
        for ticket in tickets:
            bench.device.send(commands.fetch_bytes(ticket, size))


@check("ATTN_SUBMIT_ROWS", "an engine that does not answer is an error, and the next rows are computed", Ability.FAULTS)
def _(bench: Bench) -> None:
    stored = bench.store(tokens=20)
    query = exact(bench, stored)
    rows = [query.of(stored.number)] * 2
    bench.device.inject("engine_hang")
    bench.refused("INTERNAL_ERROR", attn_submit_rows(rows))
    for row in ask_rows(bench, [query] * 2, rows):
        compare(bench, stored, query, row.data)


@check("ATTN_SUBMIT_ROWS", "a lost group fails its own row only", Ability.FAULTS)
def _(bench: Bench) -> None:
    stored = bench.store(tokens=64)
    bench.ok(namespaces.write_blocks(bench.first_block, bench.noise(64)))
    bench.ok(namespaces.write_blocks(0, bench.noise(1000)))
    bench.ok(commands.flush())
    query = exact(bench, stored)
    bench.device.inject("read_uncorrectable")
    first, second = ask_rows(bench, [query] * 2, [query.of(stored.number)] * 2)
    bench.same("the status of the first row", status_name(first.status), "UNRECOVERED_READ")
    compare(bench, stored, query, second.data)
    holds(bench, stored)
