"""Checks of KV_APPEND, SESSION_TRIM, SESSION_ERASE, SESSION_REMOVE and SESSION_FORK."""

from __future__ import annotations

from itertools import product

import numpy as np

from kvdrive import abi
from kvdrive._native import crc32c
from kvdrive.conformance.bench import Bench, Stored, with_fields
from kvdrive.conformance.queries import Query, ask, compare, exact, holds
from kvdrive.conformance.suite import check
from kvdrive.nvme import admin, commands, wire
from kvdrive.nvme.commands import Command
from kvdrive.nvme.rows import tokens_per_group
from kvdrive.nvme.wire import RowFormat

SPARSE = int(abi.AppendOption.APPEND_SPARSE)
SMALLER = tuple(one for one in RowFormat if one != RowFormat.BINARY16)


def append(stored: Stored, bench: Bench, **fields: int) -> Command:
    """A valid next append of 3 K rows for each head of a session, with other values in some fields."""
    heads, tokens, d = stored.k.shape
    rows = bench.halves(heads, 3, d)
    command = commands.kv_append(stored.number, 0, 0, abi.KvKind.KEYS, tokens, stored.sequence, rows)
    return with_fields(command, abi.KvAppend, **fields)


@check("KV_APPEND", "rows that arrive in pieces of any size are attended to bit for bit")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=1)
    for tokens in (30, 1, 33, 64, 7, 100):
        bench.extend(stored, tokens)
        holds(bench, stored)


@check("KV_APPEND", "rows in 8 and 4 bits that arrive in pieces are attended to bit for bit and come back")
def _(bench: Bench) -> None:
    for stored_as, d in product(SMALLER, (64, 128)):
        stored = bench.store(tokens=1, d=d, stored_as=stored_as)
        for tokens in (61, 3, 130):
            bench.extend(stored, tokens)
            holds(bench, stored)
        valid = bench.rng.random(195) < 0.6
        ask(bench, stored, Query(bench.halves(2, 4, d), 195, valid=valid, mode=abi.Mode.PARTIAL))


@check("KV_APPEND", "the result is the number of tokens in whole groups")
def _(bench: Bench) -> None:
    number, first = bench.session(), 0
    for sequence, tokens in enumerate((1, 30, 1, 31, 33, 64)):
        rows = bench.halves(2, tokens, 64)
        done = bench.ok(commands.kv_append(number, 0, 0, abi.KvKind.KEYS, first, sequence, rows))
        first += tokens
        per_group = abi.PAGE_BYTES // 128
        bench.same("the result", done.result, first // per_group * per_group)


@check("KV_APPEND", "sessions, layers and heads up to the last ones do not mix")
def _(bench: Bench) -> None:
    sessions = [bench.session(), bench.session()]
    sequences = dict.fromkeys(sessions, 0)
    places = [(sessions[0], 0, 0), (sessions[0], 0, 3), (sessions[0], 7, 0), (sessions[1], 0, 0)]
    places += [(sessions[1], 0xFFFF, 255)]
    kept = {}
    for session, layer, head in places:
        kept[session, layer, head] = stored = Stored(session, bench.halves(1, 40, 64), bench.halves(1, 40, 64))
        for kind, rows in ((abi.KvKind.KEYS, stored.k), (abi.KvKind.VALUES, stored.v)):
            bench.ok(commands.kv_append(session, layer, head, kind, 0, sequences[session], rows))
            sequences[session] += 1
    for (session, layer, head), stored in kept.items():
        query = Query(bench.halves(1, 1, 64), 40)
        ticket = bench.ok(query.submit(session, head, layer)).result
        compare(bench, stored, query, bench.ok(query.fetch(ticket)).data)


@check("KV_APPEND", "wrong fields, data and sequences are refused and change nothing")
def _(bench: Bench) -> None:
    stored = bench.store()
    tokens, none = stored.k.shape[1], bench.session()
    refused = [
        ("INVALID_FIELD", {"head": 255}),
        ("INVALID_FIELD", {"kind": 2}),
        ("INVALID_FIELD", {"type": 1}),
        ("INVALID_FIELD", {"options": 4}),
        ("INVALID_FIELD", {"options": SPARSE}),
        ("INVALID_FIELD", {"first_token": abi.MAX_TOKENS - 2}),
        ("INVALID_FIELD", {"first_token": 0xFFFFFFFF}),
        ("CRC_MISMATCH", {"crc32c": 0}),
        ("OUT_OF_SEQUENCE", {"sequence": stored.sequence - 1}),
        ("OUT_OF_SEQUENCE", {"sequence": stored.sequence + 1}),
        ("UNKNOWN_SESSION", {"session": none, "sequence": 0}),
        ("OUT_OF_SEQUENCE", {"session": none, "first_token": 0}),
        ("TOKEN_GAP", {"first_token": tokens - 1}),
        ("TOKEN_GAP", {"first_token": tokens + 1}),
        ("TOKEN_GAP", {"layer": 1}),
        ("TOKEN_GAP", {"head": 1}),
        ("ROW_MISMATCH", {"row_bytes": 64, "tokens": 6}),
        ("INVALID_FIELD", {"row_bytes": 24, "tokens": 16}),
    ]
    for status, fields in refused:
        bench.refused(status, append(stored, bench, **fields))
    for field in ("heads", "tokens"):
        bench.refused("INVALID_FIELD", Command(append(stored, bench, crc32c=0, **{field: 0}).entry))
    bench.same("retrying a damaged append", bench.send(append(stored, bench, crc32c=0)).retry, True)
    for status, fields in (("DATA_LENGTH", {"tokens": 4}), ("DATA_LENGTH", {"heads": 1})):
        bench.refused(status, append(stored, bench, **fields))
    holds(bench, stored)
    bench.extend(stored, 5)
    holds(bench, stored)


@check("KV_APPEND", "infinities and NaNs are refused")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=20)
    for value in (np.inf, -np.inf, np.nan):
        rows = bench.halves(2, 3, 64)
        rows[1, 2, 63] = value
        bench.refused(
            "VALUE_NOT_FINITE",
            commands.kv_append(stored.number, 0, 0, abi.KvKind.VALUES, 20, stored.sequence, rows),
        )
    bench.extend(stored, 1)
    holds(bench, stored)


@check("KV_APPEND", "every head dimension is taken, others are refused")
def _(bench: Bench) -> None:
    for d in (8, 40, 96, 256):
        holds(bench, bench.store(tokens=50, d=d, heads=1))
    for d in (4, 12, 264):
        rows = bench.halves(1, 4, d)
        bench.refused("INVALID_FIELD", commands.kv_append(bench.session(), 0, 0, abi.KvKind.KEYS, 0, 0, rows))


@check("KV_READ", "any rows of any heads come back as they were appended, with their CRC")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=200, heads=3)
    for kind, rows in ((abi.KvKind.KEYS, stored.k), (abi.KvKind.VALUES, stored.v)):
        for first, tokens in ((0, 200), (0, 1), (31, 2), (32, 64), (195, 5)):
            done = bench.ok(commands.kv_read(stored.number, 0, 1, kind, first, (2, tokens, 64)))
            bench.same("the rows", done.data.view(np.float16), rows[1:, first : first + tokens].reshape(-1))
            bench.same("the CRC", done.result, crc32c(done.data))


@check("KV_READ", "wrong fields, sessions and tokens are refused")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=20)
    command = commands.kv_read(stored.number, 0, 0, abi.KvKind.KEYS, 0, (2, 20, 64))
    refused = [
        ("UNKNOWN_SESSION", {"session": bench.session()}),
        ("TOKENS_MISSING", {"layer": 4}),
        ("TOKENS_MISSING", {"heads": 1, "tokens": 40}),
        ("ROW_MISMATCH", {"row_bytes": 64}),
        ("INVALID_FIELD", {"heads": 0}),
        ("INVALID_FIELD", {"tokens": 0}),
        ("INVALID_FIELD", {"kind": 2}),
        ("INVALID_FIELD", {"head": 255}),
        ("INVALID_FIELD", {"first_token": abi.MAX_TOKENS}),
        ("INVALID_FIELD", {"reserved1": 1}),
    ]
    for status, fields in refused:
        bench.refused(status, fitting(with_fields(command, wire.KvRead, **fields)))


def fitting(command: Command) -> Command:
    """A KV_READ with a buffer for exactly what its fields ask for."""
    fields = np.frombuffer(command.entry, wire.KvRead)[0]
    return Command(command.entry, room=int(fields["heads"]) * int(fields["tokens"]) * int(fields["row_bytes"]))


@check("SESSION_TRIM", "tokens from any one on are removed, and others can follow them")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=100, options=SPARSE)
    for left in (90, 64, 33):
        bench.ok(commands.session_trim(stored.number, left))
        stored.k, stored.v = stored.k[:, :left], stored.v[:, :left]
        query = Query(bench.halves(2, 1, 64), left + 1)
        bench.refused("TOKENS_MISSING", query.submit(stored.number))
        holds(bench, stored)
    bench.extend(stored, 40, SPARSE)
    holds(bench, stored)


@check("SESSION_TRIM", "from token 0 on it ends the session, whose number can be used again")
def _(bench: Bench) -> None:
    stored = bench.store()
    bench.ok(commands.session_trim(stored.number, 0))
    bench.refused("UNKNOWN_SESSION", exact(bench, stored).submit(stored.number))
    bench.refused("UNKNOWN_SESSION", commands.session_trim(stored.number, 0))
    rows = bench.halves(1, 2, 32)
    bench.ok(commands.kv_append(stored.number, 0, 0, abi.KvKind.KEYS, 0, 0, rows))


@check("SESSION_TRIM", "reserved fields are refused")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=5)
    for field in ("cdw3", "cdw11", "cdw15"):
        command = with_fields(commands.session_trim(stored.number, 1), **{field: 1})
        bench.refused("INVALID_FIELD", command)
    holds(bench, stored)


@check("SESSION_ERASE", "the session is gone and the log of sessions does not list it")
def _(bench: Bench) -> None:
    stored, other = bench.store(), bench.store()
    bench.same("the session in the log", stored.number in sessions(bench), True)
    bench.ok(commands.session_erase(stored.number))
    bench.same("the session in the log", stored.number in sessions(bench), False)
    bench.refused("UNKNOWN_SESSION", exact(bench, stored).submit(stored.number))
    bench.refused("UNKNOWN_SESSION", commands.session_erase(stored.number))
    holds(bench, other)


@check("SESSION_ERASE", "from a later token on the first tokens stay, and a fork keeps what it shares")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=100)
    fork = Stored(bench.session(), stored.k, stored.v, 0)
    bench.ok(commands.session_fork(stored.number, fork.number, 100))
    bench.ok(commands.session_erase(stored.number, 40))
    stored.k, stored.v = stored.k[:, :40], stored.v[:, :40]
    holds(bench, stored)
    holds(bench, fork)
    bench.ok(commands.session_erase(stored.number))
    holds(bench, fork)


@check("SESSION_ERASE", "reserved fields are refused")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=64)
    for field in ("cdw3", "cdw11", "cdw15"):
        bench.refused("INVALID_FIELD", with_fields(commands.session_erase(stored.number), **{field: 1}))
    holds(bench, stored)


def without(stored: Stored, removed: range) -> None:
    """Take these tokens out of the rows that the session should have."""
    stored.k, stored.v = (np.delete(rows, removed, axis=1) for rows in (stored.k, stored.v))


@check("SESSION_REMOVE", "what remains is attended to bit for bit, after more removals and rows, and a fork keeps all")
def _(bench: Bench) -> None:
    for options in (0, SPARSE):
        stored = bench.store(tokens=300, options=options)
        fork = Stored(bench.session(), stored.k, stored.v, 0)
        bench.ok(commands.session_fork(stored.number, fork.number, 300))
        for removed, added in ((range(32, 64), 9), (range(32, 160), 40), (range(32, 64), 0)):
            bench.ok(commands.session_remove(stored.number, removed, stored.k.shape[1]))
            without(stored, removed)
            holds(bench, stored)
            if added:
                bench.extend(stored, added, options)
                holds(bench, stored)
        holds(bench, fork)
        bench.ok(commands.session_trim(fork.number, 0))
        holds(bench, stored)


@check("SESSION_REMOVE", "later layers keep their tokens")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=100)
    rows = bench.halves(2, 100, 64)
    bench.ok(commands.kv_append(stored.number, 7, 0, abi.KvKind.KEYS, 0, stored.sequence, rows))
    bench.ok(commands.session_remove(stored.number, range(32, 64), 100, layers=7))
    without(stored, range(32, 64))
    holds(bench, stored)
    read = bench.ok(commands.kv_read(stored.number, 7, 0, abi.KvKind.KEYS, 0, rows.shape))
    bench.same("rows of the later layer", read.data.tobytes(), rows.tobytes())


@check("SESSION_REMOVE", "ranges that are not whole groups behind the first one, and repetitions, are refused")
def _(bench: Bench) -> None:
    stored, free = bench.store(tokens=100), bench.session()
    for removed in (range(0, 32), range(16, 48), range(64, 96), range(32, 63), range(32, 32)):
        bench.refused("INVALID_FIELD", commands.session_remove(stored.number, removed, 100))
    for removed in (range(32, 128), range(32, 320)):
        bench.refused("TOKENS_MISSING", commands.session_remove(stored.number, removed, 100))
    bench.refused("UNKNOWN_SESSION", commands.session_remove(free, range(32, 64), 100))
    right = commands.session_remove(stored.number, range(32, 64), 100)
    for field in ("cdw3", "cdw14", "cdw15"):
        bench.refused("INVALID_FIELD", with_fields(right, **{field: 1}))
    holds(bench, stored)
    bench.ok(right)
    bench.refused("TOKEN_GAP", right)
    without(stored, range(32, 64))
    holds(bench, stored)


@check("SESSION_FORK", "the fork begins with the session's tokens, and both go on apart")
def _(bench: Bench) -> None:
    for options in (0, SPARSE):
        stored = bench.store(tokens=100, options=options)
        fork = Stored(bench.session(), stored.k[:, :70], stored.v[:, :70], 0)
        bench.ok(commands.session_fork(stored.number, fork.number, 70))
        holds(bench, fork)
        bench.extend(stored, 9, options)
        bench.extend(fork, 33, options)
        holds(bench, stored)
        holds(bench, fork)
        bench.ok(commands.session_trim(stored.number, 0))
        holds(bench, fork)


@check("SESSION_FORK", "rows in 8 and 4 bits are kept through forks, trims, removals and further appends")
def _(bench: Bench) -> None:
    for stored_as, options in product(SMALLER, (0, SPARSE)):
        group = tokens_per_group(stored_as, 64)
        stored = bench.store(tokens=4 * group + 9, options=options, stored_as=stored_as)
        fork = Stored(bench.session(), stored.k[:, : group + 3], stored.v[:, : group + 3], 0, stored_as)
        bench.ok(commands.session_fork(stored.number, fork.number, group + 3))
        bench.ok(commands.session_trim(stored.number, 4 * group + 2))
        stored.k, stored.v = stored.k[:, : 4 * group + 2], stored.v[:, : 4 * group + 2]
        bench.ok(commands.session_remove(stored.number, range(group, 2 * group), 4 * group + 2))
        without(stored, range(group, 2 * group))
        for one in (stored, fork):
            bench.extend(one, group + 5, options)
            holds(bench, one)
            if options:
                tokens = one.k.shape[1]
                ask(
                    bench,
                    one,
                    Query(bench.halves(2, 4, 64), tokens, mode=abi.Mode.SPARF_ATTEND, r=6, k_top=25, local=4),
                )


@check("SESSION_FORK", "wrong sessions, numbers and reserved fields are refused")
def _(bench: Bench) -> None:
    stored, other, free = bench.store(), bench.store(tokens=3), bench.session()
    bench.refused("UNKNOWN_SESSION", commands.session_fork(free, bench.session(), 10))
    bench.refused("SESSION_EXISTS", commands.session_fork(stored.number, other.number, 10))
    bench.refused("INVALID_FIELD", commands.session_fork(stored.number, stored.number, 10))
    bench.refused("INVALID_FIELD", commands.session_fork(stored.number, free, 0))
    for field in ("cdw3", "cdw12", "cdw15"):
        bench.refused("INVALID_FIELD", with_fields(commands.session_fork(stored.number, free, 10), **{field: 1}))
    bench.refused("UNKNOWN_SESSION", commands.session_trim(free, 0))
    holds(bench, stored)
    holds(bench, other)


def sessions(bench: Bench) -> set[int]:
    """Numbers in the log of sessions."""
    page = bench.ok(admin.get_log_page(wire.LogPage.LOG_SESSIONS, 1 << 16), admin=True).data.view(np.uint32)
    return set(page[1 : 1 + int(page[0])].tolist())
