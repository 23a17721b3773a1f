"""Checks of ATTN_SUBMIT and ATTN_FETCH."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvdrive import abi
from kvdrive.conformance.bench import Bench, status_name, with_fields
from kvdrive.conformance.queries import Query, ask, compare, exact, holds, submit_with
from kvdrive.conformance.sessions import SMALLER
from kvdrive.conformance.suite import check
from kvdrive.nvme import commands

SPARSE = int(abi.AppendOption.APPEND_SPARSE)
GROUPS = int(abi.AppendOption.APPEND_GROUPS)
_MOST_TICKETS = 4096  # more than any drive is expected to keep


@check("ATTN_SUBMIT", "exact attention gives the golden model's bits for groups up to 128 and any head dimension")
def _(bench: Bench) -> None:
    for group, d in ((1, 64), (4, 128), (5, 32), (8, 8), (9, 24), (128, 40)):
        stored = bench.store(tokens=75, d=d, heads=2 if group < 9 else 1)
        ask(bench, stored, exact(bench, stored, group))


@check("ATTN_SUBMIT", "a prefix, a bitmap and a head in the middle are attended to bit for bit")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=600, heads=3)
    for tokens in (1, 31, 32, 33, 512, 600):
        query = Query(bench.halves(3, 2, 64), tokens)
        ask(bench, stored, query)
        valid = bench.rng.random(tokens) < 0.6
        valid[tokens // 2] = True
        ask(bench, stored, replace(query, valid=valid))
    query = Query(bench.halves(1, 2, 64), 600)
    ticket = bench.ok(query.submit(stored.number, head=1)).result
    one = replace(stored, k=stored.k[1:2], v=stored.v[1:2])
    compare(bench, one, query, bench.ok(query.fetch(ticket)).data)


@check("ATTN_SUBMIT", "inline tokens and partial results are exact")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=75)
    for count in (1, 16, 40):
        scores = bench.rng.integers(-8 << 20, 8 << 20, (2, 3, count)).astype(np.int32)
        query = Query(bench.halves(2, 3, 64), 75, inline_scores=scores, inline_v=bench.halves(2, count, 64))
        ask(bench, stored, query)
        ask(bench, stored, replace(query, mode=abi.Mode.PARTIAL))


@check("ATTN_SUBMIT", "SparF gives the golden model's bits, with and without the embedding-indexed copy of K")
def _(bench: Bench) -> None:
    for tokens, options in ((200, 0), (300, SPARSE), (1500, SPARSE)):
        stored = bench.store(tokens=tokens, options=options)
        query = Query(bench.halves(2, 4, 64), tokens, mode=abi.Mode.SPARF_ATTEND, r=6, k_top=25, local=4)
        ask(bench, stored, query)
        ask(bench, stored, replace(query, tokens=tokens - 7, valid=bench.rng.random(tokens - 7) < 0.7))
        scores = bench.rng.integers(-8 << 20, 8 << 20, (2, 4, 5)).astype(np.int32)
        ask(bench, stored, replace(query, inline_scores=scores, inline_v=bench.halves(2, 5, 64)))


@check("ATTN_SUBMIT", "SparF and policy groups over rows in 8 and 4 bits give the golden model's bits")
def _(bench: Bench) -> None:
    for stored_as in SMALLER:
        stored = bench.store(tokens=600, options=SPARSE | GROUPS, stored_as=stored_as)
        valid = bench.rng.random(593) < 0.7
        for query in (
            Query(bench.halves(2, 4, 64), 600, mode=abi.Mode.SPARF_ATTEND, r=6, k_top=25, local=4),
            Query(bench.halves(2, 4, 64), 600, mode=abi.Mode.GROUPS, r=32, k_top=3),
        ):
            ask(bench, stored, query)
            ask(bench, stored, replace(query, tokens=593, valid=valid))


@check("ATTN_SUBMIT", "policy groups gives the golden model's bits, and its estimate of what was left unread")
def _(bench: Bench) -> None:
    for tokens, unit in ((300, 32), (1500, 16), (1500, 128)):
        stored = bench.store(tokens=tokens, options=GROUPS)
        query = Query(bench.halves(2, 4, 64), tokens, mode=abi.Mode.GROUPS, r=unit, k_top=3)
        ask(bench, stored, query)
        ask(bench, stored, replace(query, tokens=tokens - 7, valid=bench.rng.random(tokens - 7) < 0.7))
        scores = bench.rng.integers(-8 << 20, 8 << 20, (2, 4, 5)).astype(np.int32)
        ask(bench, stored, replace(query, inline_scores=scores, inline_v=bench.halves(2, 5, 64)))


@check("ATTN_SUBMIT", "wrong fields, data, sessions and heads are refused and change nothing")
def _(bench: Bench) -> None:
    stored = bench.store()
    narrow = bench.store(d=32, heads=1)
    query = exact(bench, stored, 4)
    tokens = query.tokens
    refused: list[tuple[str, dict[str, int]]] = [
        ("INVALID_FIELD", {"mode": abi.Mode.SPARF_ROWS}),
        ("INVALID_FIELD", {"mode": 255}),
        ("INVALID_FIELD", {"mode": abi.Mode.SPARF_ATTEND, "r": 8}),
        ("INVALID_FIELD", {"mode": abi.Mode.SPARF_ATTEND, "k_top": 8}),
        ("INVALID_FIELD", {"mode": abi.Mode.GROUPS, "r": 32}),
        ("INVALID_FIELD", {"mode": abi.Mode.GROUPS, "k_top": 8}),
        ("INVALID_FIELD", {"mode": abi.Mode.GROUPS, "r": 33, "k_top": 8}),
        ("INVALID_FIELD", {"group": 0}),
        ("INVALID_FIELD", {"group": 17}),
        ("INVALID_FIELD", {"heads": 0}),
        ("INVALID_FIELD", {"head": 255}),
        ("INVALID_FIELD", {"tokens": 0}),
        ("INVALID_FIELD", {"tokens": abi.MAX_TOKENS + 1}),
        ("INVALID_FIELD", {"has_valid": 2}),
        ("INVALID_FIELD", {"reserved0": 1}),
        ("INVALID_FIELD", {"r": 1}),
        ("INVALID_FIELD", {"k_top": 1}),
        ("INVALID_FIELD", {"local": 1}),
        ("UNKNOWN_SESSION", {"session": bench.session()}),
        ("TOKENS_MISSING", {"layer": 1}),
        ("TOKENS_MISSING", {"head": 1}),
        ("TOKENS_MISSING", {"tokens": tokens + 1}),
        ("CRC_MISMATCH", {"crc32c": 0}),
        ("DATA_LENGTH", {"group": 2}),
        ("DATA_LENGTH", {"heads": 1}),
        ("DATA_LENGTH", {"has_valid": 1}),
        ("DATA_LENGTH", {"inline_tokens": 1}),
    ]
    for status, fields in refused:  # the length of the data follows from some of the fields
        bench.refused(status, submit_with(query, stored, **fields), also="DATA_LENGTH")
    k = bench.halves(1, tokens, 32)
    for kind in abi.KvKind:
        bench.ok(commands.kv_append(stored.number, 0, 2, kind, 0, stored.sequence, k))
        stored.sequence += 1
    bench.refused("ROW_MISMATCH", Query(bench.halves(2, 1, 64), tokens).submit(stored.number, head=1))
    holds(bench, stored)
    holds(bench, narrow)


@check("ATTN_SUBMIT", "a query sees what was appended before it, whatever happens to the session afterwards")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=50)
    before = replace(stored)
    query = exact(bench, stored)
    ticket = bench.ok(query.submit(stored.number)).result
    bench.extend(stored, 20)
    bench.ok(commands.session_trim(stored.number, 10))
    bench.ok(commands.session_erase(stored.number))
    compare(bench, before, query, bench.ok(query.fetch(ticket)).data)


@check("ATTN_SUBMIT", "the drive keeps at least 64 results, and refuses more than it keeps until one is fetched")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=3, heads=1)
    query = exact(bench, stored, 1)
    tickets: list[int] = []
    try:
        while (done := bench.send(query.submit(stored.number))).status == 0 and len(tickets) < _MOST_TICKETS:
            tickets.append(done.result)
        bench.same("different tickets", len(set(tickets)), len(tickets))
        bench.same("64 tickets", len(tickets) >= 64, True)
        if len(tickets) < _MOST_TICKETS:
            bench.same("the status of one more", status_name(done.status), "TICKETS_EXHAUSTED")
            bench.same("retrying it", done.retry, True)
            compare(bench, stored, query, bench.ok(query.fetch(tickets.pop())).data)
            tickets.append(bench.ok(query.submit(stored.number)).result)
    finally:
        for ticket in tickets:
            bench.device.send(query.fetch(ticket))


@check("ATTN_FETCH", "results are fetched in any order, each once")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=50)
    queries = [exact(bench, stored) for _ in range(5)]
    tickets = [bench.ok(query.submit(stored.number)).result for query in queries]
    for i in (3, 0, 4, 1, 2):
        compare(bench, stored, queries[i], bench.ok(queries[i].fetch(tickets[i])).data)
        bench.refused("UNKNOWN_TICKET", queries[i].fetch(tickets[i]))


@check("ATTN_FETCH", "a wrong size or a reserved field is refused and the ticket stays valid")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=50)
    query = exact(bench, stored)
    ticket = bench.ok(query.submit(stored.number)).result
    fetch = query.fetch(ticket)
    for wrong in (fetch.room - 4, fetch.room + 4):
        command = with_fields(replace(fetch, room=wrong), abi.AttnFetch, data_bytes=wrong)
        bench.refused("DATA_LENGTH", command)
    bench.refused("INVALID_FIELD", with_fields(fetch, cdw15=1))
    bench.refused("INVALID_FIELD", with_fields(fetch, cdw2=1))
    compare(bench, stored, query, bench.ok(fetch).data)


@check("ATTN_FETCH", "the errors of a query end its ticket: no valid token, values that are not finite, refused jobs")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=50)
    query = exact(bench, stored)
    infinite = bench.halves(2, 2, 64)
    infinite[0, 1, 5] = np.inf
    failing = [
        ("NO_VALID_TOKEN", replace(query, valid=np.zeros(50, np.bool_)).submit(stored.number)),
        ("VALUE_NOT_FINITE", replace(query, q=infinite).submit(stored.number)),
        ("JOB_REFUSED", submit_with(query, stored, scale_log2e=0x7F800000)),
        ("JOB_REFUSED", replace(query, mode=abi.Mode.SPARF_ATTEND, r=65, k_top=8).submit(stored.number)),
    ]
    words = {"JOB_REFUSED": [abi.Status.BAD_SCALE, abi.Status.BAD_R]}
    for status, submit in failing:
        fetch = query.fetch(bench.ok(submit).result)
        done = bench.refused(status, fetch)
        if status in words:
            bench.same("the engine's status word", done.result, int(words[status].pop(0)))
        bench.refused("UNKNOWN_TICKET", fetch)
    holds(bench, stored)
