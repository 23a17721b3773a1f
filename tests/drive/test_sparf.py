# SPDX-License-Identifier: Apache-2.0
"""SparF and PARTIAL in the drive equal the golden model's composition, bit for bit, for every way of storing rows."""

import itertools

import numpy as np
import pytest
from answers import tail_data
from random_halves import halves

import golden
from golden.sparf import sparf
from kvdrive import abi

D = 64
SPARSE = abi.AppendOption.APPEND_SPARSE
OK = abi.NvmeStatus.SUCCESS


def store(host, rng, k, v, options):
    """Store K and V in three pieces."""
    cuts = [0, *sorted(rng.integers(1, k.shape[1], 2).tolist()), k.shape[1]]
    for first, last in itertools.pairwise(cuts):
        if first < last:
            host.store(k[:, first:last], v[:, first:last], first_token=first, options=options)


def outputs(reply, heads, group, d, dtype):
    assert reply.status == OK
    records = reply.data[: heads * abi.AttentionResult.itemsize].view(abi.AttentionResult)
    return records, reply.data[records.nbytes :].view(dtype).reshape(heads, group, d)


def attend(host, q, tokens, valid, tail, out_bytes, **fields):
    inline_tokens, extra = (0, None) if tail is None else (tail[0].shape[2], tail[2])
    ticket = host.submit(q, tokens, valid, extra=extra, inline_tokens=inline_tokens, **fields)
    assert ticket.status == OK
    return host.fetch(ticket.result, len(q) * abi.AttentionResult.itemsize + q.size * out_bytes)


# tokens, attended tokens, options of the appends, mask, tail
CASES = {
    "rows only": (200, 200, 0, False, 0),
    "short, indexed": (300, 300, SPARSE, False, 0),
    "spans of one block": (6200, 6200, SPARSE, False, 0),
    "spans of all kinds": (41200, 40000, SPARSE, False, 0),
    "a prefix": (1500, 700, SPARSE, False, 0),
    "a mask": (600, 600, SPARSE, True, 0),
    "a tail": (300, 300, SPARSE, False, 5),
    "everything": (1100, 1000, SPARSE, True, 33),
}


@pytest.mark.parametrize("case", CASES)
def test_sparf_equals_golden(host, case):
    stored, tokens, options, masked, inline_tokens = CASES[case]
    rng = np.random.default_rng(stored)
    heads, group, r, k_top, local = 2, 4, 16, 60, 10
    k, v, q = halves(rng, heads, stored, D), halves(rng, heads, stored, D), halves(rng, heads, group, D)
    store(host, rng, k, v, options)
    valid = rng.random(tokens) < 0.7 if masked else None
    tail = tail_data(rng, heads, group, inline_tokens, D) if inline_tokens else None
    fields = {"mode": abi.Mode.SPARF_ATTEND, "r": r, "k_top": k_top, "local": local}
    reply = attend(host, q, tokens, valid, tail, 2, **fields)
    records, out = outputs(reply, heads, group, D, np.uint16)
    for head in range(heads):
        want = sparf(
            q[head], k[head, :tokens], v[head, :tokens], r=r, k_top=k_top, local=local,
            valid=None if valid is None else np.packbits(valid, bitorder="little"),
            tail_scores=None if tail is None else tail[0][head], tail_v=None if tail is None else tail[1][head],
        )  # fmt: skip
        assert want.status == 0
        np.testing.assert_array_equal(out[head], want.out.view(np.uint16))
        np.testing.assert_array_equal(records["max"][head, :group], want.max)
        np.testing.assert_array_equal(records["sum"][head, :group], want.sum)
        np.testing.assert_array_equal(records["alpha"][head, :group], want.alpha)


@pytest.mark.parametrize("d", [32, 96, 256])
def test_head_dimensions(host, d):
    rng = np.random.default_rng(d)
    k, v, q = halves(rng, 1, 700, d), halves(rng, 1, 700, d), halves(rng, 1, 2, d)
    store(host, rng, k, v, SPARSE)
    reply = attend(host, q, 700, None, None, 2, mode=abi.Mode.SPARF_ATTEND, r=8, k_top=40, local=4)
    out = outputs(reply, 1, 2, d, np.uint16)[1]
    np.testing.assert_array_equal(out[0], sparf(q[0], k[0], v[0], r=8, k_top=40, local=4).out.view(np.uint16))


def test_compiled_kernels_give_the_same_bits(make_drive):
    rng = np.random.default_rng(5)
    host = make_drive(engine="hls")
    k, v, q = halves(rng, 1, 300, 32), halves(rng, 1, 300, 32), halves(rng, 1, 2, 32)
    store(host, rng, k, v, SPARSE)
    reply = attend(host, q, 300, None, None, 2, mode=abi.Mode.SPARF_ATTEND, r=8, k_top=20, local=4)
    out = outputs(reply, 1, 2, 32, np.uint16)[1]
    np.testing.assert_array_equal(out[0], sparf(q[0], k[0], v[0], r=8, k_top=20, local=4).out.view(np.uint16))


@pytest.mark.parametrize("mode", [abi.Mode.EXACT, abi.Mode.PARTIAL])
@pytest.mark.parametrize("inline_tokens", [0, 1, 16, 40])
def test_dense_modes_with_a_tail(host, mode, inline_tokens):
    rng = np.random.default_rng(inline_tokens)
    heads, group, tokens = 2, 2, 75
    k, v, q = halves(rng, heads, tokens, D), halves(rng, heads, tokens, D), halves(rng, heads, group, D)
    host.store(k, v)
    tail = tail_data(rng, heads, group, inline_tokens, D) if inline_tokens else None
    partial = mode == abi.Mode.PARTIAL
    reply = attend(host, q, tokens, None, tail, 4 if partial else 2, mode=mode)
    records, out = outputs(reply, heads, group, D, np.uint32 if partial else np.uint16)
    for head in range(heads):
        want = golden.attention(
            q[head], k[head], v[head], scale_log2e=golden.scale_bits(None, D), partial=partial,
            tail_scores=None if tail is None else tail[0][head], tail_v=None if tail is None else tail[1][head],
        )  # fmt: skip
        np.testing.assert_array_equal(out[head], want.out.view(out.dtype))
        np.testing.assert_array_equal(records["sum"][head, :group], want.sum)


def test_only_pages_with_a_wanted_row_are_read(host):
    """4096 tokens: 4 spans of 256 with 8 rows per page, 6 of 512 with 4."""
    rng = np.random.default_rng(9)
    tokens, r = 4096, 4
    k, v, q = halves(rng, 1, tokens, D), halves(rng, 1, tokens, D), halves(rng, 1, 1, D)
    host.store(k, v, options=SPARSE)
    want = sparf(q[0], k[0], v[0], r=r, k_top=16, local=0)
    before = host.drive.flash_stats()
    attend(host, q, tokens, None, None, 2, mode=abi.Mode.SPARF_ATTEND, r=r, k_top=16, local=0)
    stats = host.drive.flash_stats()
    rows = np.flatnonzero(np.unpackbits(want.rows, bitorder="little")[:D])
    chosen = np.flatnonzero(np.unpackbits(want.bitmap, bitorder="little")[:tokens])
    embedding_pages = 4 * len(np.unique(rows // 8)) + 6 * len(np.unique(rows // 4))
    token_pages = 2 * len(np.unique(chosen // 32))
    change = {key: stats[key] - before[key] for key in stats if key.startswith("filter")}
    assert change["filter_pages"] == embedding_pages + token_pages
    assert change["filter_rows_kept"] == (4 + 6) * r + 2 * 16
    assert change["filter_bytes"] == tokens * r * 2 + 2 * 16 * D * 2
    assert stats["groups_read"] - before["groups_read"] == change["filter_pages"]


@pytest.mark.parametrize(("fields", "bit"), [({"r": 65}, abi.Status.BAD_R), ({"k_top": 201}, abi.Status.BAD_K)])
def test_a_choice_that_the_engine_refuses(host, fields, bit):
    rng = np.random.default_rng(3)
    k, q = halves(rng, 1, 200, D), halves(rng, 1, 2, D)
    host.store(k, k)
    reply = host.attend(q, 200, **({"mode": abi.Mode.SPARF_ATTEND, "r": 8, "k_top": 20, "local": 0} | fields))
    assert (reply.status, reply.result) == (abi.NvmeStatus.JOB_REFUSED, bit)
