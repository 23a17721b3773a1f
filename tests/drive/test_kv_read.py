# SPDX-License-Identifier: Apache-2.0
"""KV_READ: rows come back as they were appended, or the command fails."""

import numpy as np
import pytest
from random_halves import halves

from kvdrive import abi
from kvdrive._native import crc32c

S = abi.NvmeStatus
TOKENS, HEADS, D = 200, 3, 64


@pytest.fixture
def stored(host):
    """Session 1 with 200 tokens: 6 whole groups of 32, and 8 staged rows."""
    rng = np.random.default_rng(1)
    host.k, host.v = halves(rng, HEADS, TOKENS, D), halves(rng, HEADS, TOKENS, D)
    host.store(host.k, host.v, layer=5)
    return host


def read(host, first=0, tokens=TOKENS, **fields):
    values = {"session": 1, "layer": 5, "heads": HEADS, "first_token": first, "tokens": tokens, "row_bytes": 2 * D}
    return host.raw(host.entry("read", **(values | fields)))


@pytest.mark.parametrize(("first", "tokens"), [(0, 200), (0, 1), (31, 2), (32, 64), (100, 100), (195, 5)])
@pytest.mark.parametrize("kind", abi.KvKind)
def test_rows_are_those_that_were_appended(stored, first, tokens, kind):
    reply = read(stored, first, tokens, head=1, heads=2, kind=kind)
    rows = (stored.k, stored.v)[kind][1:, first : first + tokens]
    assert reply.status == S.SUCCESS
    assert reply.data.tobytes() == rows.tobytes()
    assert reply.result == crc32c(reply.data)


def test_a_fork_and_a_mounted_drive_have_the_same_rows(stored):
    assert stored.fork(1, 2, 150).status == S.SUCCESS
    stored.flush()
    stored.reopen()
    assert read(stored, 0, 150, session=2).data.tobytes() == stored.k[:, :150].tobytes()
    assert read(stored, 0, 151, session=2).status == S.TOKENS_MISSING


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"session": 9}, S.UNKNOWN_SESSION),
        ({"layer": 4}, S.TOKENS_MISSING),
        ({"heads": 4}, S.TOKENS_MISSING),
        ({"tokens": 201}, S.TOKENS_MISSING),
        ({"row_bytes": 64}, S.ROW_MISMATCH),
        ({"heads": 0}, S.INVALID_FIELD),
        ({"tokens": 0}, S.INVALID_FIELD),
        ({"kind": 2}, S.INVALID_FIELD),
        ({"head": 255, "heads": 2}, S.INVALID_FIELD),
        ({"first_token": abi.MAX_TOKENS, "tokens": 1}, S.INVALID_FIELD),
        ({"first_token": 0xFFFFFFFF, "tokens": 1}, S.INVALID_FIELD),
    ],
)
def test_what_is_not_there_is_refused(stored, fields, status):
    reply = read(stored, **fields)
    assert (reply.status, reply.data.size) == (status, 0)


def test_a_lost_group_fails_the_command(make_drive):
    host = make_drive(preset="mqsim-default", pages_per_block=2, capacity_bytes=4096 * 2000)
    rows = halves(np.random.default_rng(2), 1, 32 * 512, D)  # fills programs of every die: it lies in flash
    host.store(rows, rows)
    host.drive.inject("read_uncorrectable", after=7)
    fields = {"layer": 0, "heads": 1, "tokens": rows.shape[1]}
    reply = read(host, **fields)
    assert (reply.status, reply.data.size) == (S.UNRECOVERED_READ, 0)
    assert read(host, **fields).data.tobytes() == rows.tobytes()  # the fault affects one read only


def test_reading_takes_device_time_and_counts_pages(stored):
    stored.flush()
    before = stored.drive.stats()
    assert read(stored).status == S.SUCCESS
    after = stored.drive.stats()
    assert after["pages_read"] - before["pages_read"] == HEADS * (TOKENS // 32)
    assert after["host_bytes_out"] - before["host_bytes_out"] == abi.CQE_BYTES + stored.k.nbytes
