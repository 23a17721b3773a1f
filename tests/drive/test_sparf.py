# SPDX-License-Identifier: Apache-2.0
"""SparF and PARTIAL in the drive equal the golden model's composition, bit for bit, for every way of storing rows.

Over rows in 8 and 4 bits, SparF is that of the numbers that the rows stand for.
"""

import itertools

import numpy as np
import pytest
from answers import inline_data
from coded_rows import FORMATS, as_stored, per_group
from disk import PAGE, journal_start, put
from once import once
from pairs import in_pairs, some_quick
from random_halves import halves

import golden
from golden.sparf import sparf as golden_sparf
from kvdrive import _native, abi
from kvdrive.nvme.wire import RowFormat

sparf = once(golden_sparf)
D = 64
SPARSE = abi.AppendOption.APPEND_SPARSE
OK = abi.NvmeStatus.SUCCESS
IN_8_BITS = (RowFormat.INT8, RowFormat.FP8)


def store(host, rng, k, v, options, kind=RowFormat.BINARY16):
    """Store K and V in three pieces. Returns the numbers that are stored."""
    (k_rows, k), (v_rows, v) = as_stored(k, kind), as_stored(v, kind)
    cuts = [0, *sorted(rng.integers(1, k.shape[1], 2).tolist()), k.shape[1]]
    for first, last in itertools.pairwise(cuts):
        if first < last:
            fields = {"first_token": first, "options": options, "type": kind}
            host.store(k_rows[:, first:last], v_rows[:, first:last], **fields)
    return k, v


def outputs(reply, heads, group, d, dtype):
    assert reply.status == OK
    records = reply.data[: heads * abi.AttentionResult.itemsize].view(abi.AttentionResult)
    return records, reply.data[records.nbytes :].view(dtype).reshape(heads, group, d)


def attend(host, q, tokens, valid, inline, out_bytes, **fields):
    inline_tokens, extra = (0, None) if inline is None else (inline[0].shape[2], inline[2])
    ticket = host.submit(q, tokens, valid, extra=extra, inline_tokens=inline_tokens, **fields)
    assert ticket.status == OK
    return host.fetch(ticket.result, len(q) * abi.AttentionResult.itemsize + q.size * out_bytes)


# tokens, attended tokens, options of the appends, mask, inline
CASES = {
    "rows only": (200, 200, 0, False, 0),
    "short, indexed": (300, 300, SPARSE, False, 0),
    "spans of one block": (6200, 6200, SPARSE, False, 0),
    "spans of all kinds": (41200, 40000, SPARSE, False, 0),
    "a prefix": (1500, 700, SPARSE, False, 0),
    "a mask": (600, 600, SPARSE, True, 0),
    "inline tokens": (300, 300, SPARSE, False, 5),
    "everything": (1100, 1000, SPARSE, True, 33),
}


def check(host, q, k, v, tokens, valid=None, inline=None, *, r=16, k_top=60, local=10, **fields):
    """Compare a command over the first `tokens` tokens with the golden model. `k`, `v`: the stored numbers."""
    heads, group, d = q.shape
    fields |= {"mode": abi.Mode.SPARF_ATTEND, "r": r, "k_top": k_top, "local": local}
    reply = attend(host, q, tokens, valid, inline, 2, **fields)
    records, out = outputs(reply, heads, group, d, np.uint16)
    for head in range(heads):
        want = sparf(
            q[head], k[head, :tokens], v[head, :tokens], r=r, k_top=k_top, local=local,
            valid=None if valid is None else np.packbits(valid, bitorder="little"),
            inline_scores=inline and inline[0][head], inline_v=inline and inline[1][head],
        )  # fmt: skip
        assert want.status == 0
        np.testing.assert_array_equal(out[head], want.out.view(np.uint16))
        np.testing.assert_array_equal(records["max"][head, :group], want.max)
        np.testing.assert_array_equal(records["sum"][head, :group], want.sum)
        np.testing.assert_array_equal(records["alpha"][head, :group], want.alpha)


IN_FORMATS = list(itertools.product(CASES, RowFormat))
# The longest in 8 bits are slow: 4 bits have the same spans.
QUICK = [(case, kind) for case, kind in IN_FORMATS if CASES[case][0] <= 6000 or kind not in IN_8_BITS]


@pytest.mark.parametrize(("case", "kind"), some_quick(IN_FORMATS, QUICK))
def test_sparf_equals_golden(host, case, kind):
    stored, tokens, options, masked, inline_tokens = CASES[case]
    rng = np.random.default_rng(stored)
    heads, group = 2, 4
    k, v, q = halves(rng, heads, stored, D), halves(rng, heads, stored, D), halves(rng, heads, group, D)
    k, v = store(host, rng, k, v, options, kind)
    valid = rng.random(tokens) < 0.7 if masked else None
    inline = inline_data(rng, heads, group, inline_tokens, D) if inline_tokens else None
    check(host, q, k, v, tokens, valid, inline)


@pytest.mark.parametrize("kind", RowFormat)
@pytest.mark.parametrize("d", [8, 32, 72, 96, 256])
def test_head_dimensions(host, d, kind):
    rng = np.random.default_rng(d)
    k, v, q = halves(rng, 1, 700, d), halves(rng, 1, 700, d), halves(rng, 1, 2, d)
    k, v = store(host, rng, k, v, SPARSE, kind)
    check(host, q, k, v, 700, r=8, k_top=40, local=4)


@pytest.mark.parametrize("kind", RowFormat)
@pytest.mark.parametrize("group", [1, 2, 4, 12])
def test_groups_of_query_heads(host, group, kind):
    rng = np.random.default_rng(group)
    k, v, q = halves(rng, 1, 500, D), halves(rng, 1, 500, D), halves(rng, 1, group, D)
    k, v = store(host, rng, k, v, SPARSE, kind)
    check(host, q[:, :8], k, v, 500)
    if group > 8:  # records of two calls
        reply = host.attend(q, 500, mode=abi.Mode.SPARF_ATTEND, r=16, k_top=60, local=10)
        out = reply.data[2 * abi.AttentionResult.itemsize :].view(np.uint16).reshape(group, D)
        want = sparf(q[0], k[0], v[0], r=16, k_top=60, local=10)
        np.testing.assert_array_equal(out, want.out.view(np.uint16))


@pytest.mark.parametrize("kind", RowFormat)
@pytest.mark.parametrize(("group", "d"), [(2, 32), (4, 64)])
def test_compiled_kernels_give_the_same_bits(make_drive, group, d, kind):
    rng = np.random.default_rng(5)
    host = make_drive(engine="hls")
    k, v, q = halves(rng, 1, 300, d), halves(rng, 1, 300, d), halves(rng, 1, group, d)
    k, v = store(host, rng, k, v, SPARSE, kind)
    check(host, q, k, v, 300, r=8, k_top=20, local=4)
    check(host, q, k, v, 290, rng.random(290) < 0.7, inline_data(rng, 1, group, 5, d), r=8, k_top=20, local=4)


@in_pairs({"engine": ["fast", "hls"], "preset": ["", "plain"], "kind": RowFormat})
def test_forks_trims_removals_and_mounts_keep_index_and_sum(make_drive, kind, preset, engine):
    rng = np.random.default_rng(18)
    options = {"preset": preset, "engine": engine, "run_groups": 1}
    host = make_drive(**options)
    (k_rows, k), (v_rows, v) = (as_stored(halves(rng, 2, 1100, D), kind) for _ in range(2))
    q, fields = halves(rng, 2, 4, D), {"options": SPARSE, "type": kind}
    group = per_group(kind, D) if kind in FORMATS else 32
    for first, last in ((0, 400), (400, 1000)):
        host.store(k_rows[:, first:last], v_rows[:, first:last], first_token=first, **fields)
    check(host, q, k, v, 1000)
    check(host, q, k, v, 900, rng.random(900) < 0.7, inline_data(rng, 2, 4, 5, D))
    assert host.fork(1, 2, 777).status == OK
    assert host.trim(1, 650).status == OK
    for reopened in (False, True):
        if reopened:
            host.reopen(run_groups=1)
        check(host, q, k, v, 650, session=1)
        check(host, q, k, v, 777, session=2)
    host.store(k_rows[:, 650:], v_rows[:, 650:], first_token=650, **fields)
    assert host.remove(2 * group, before=777, session=2, group=group).status == OK
    left = [np.delete(one, range(group, 3 * group), axis=1) for one in (k_rows, v_rows, k, v)]
    tokens = 777 - 2 * group
    check(host, q, *left[2:], tokens, session=2)
    host.store(*(one[:, tokens:] for one in left[:2]), first_token=tokens, session=2, **fields)
    for reopened in (False, True):
        if reopened:
            host.reopen(run_groups=1)
        check(host, q, k, v, 1100, session=1)
        check(host, q, k, v, 1100, rng.random(1100) < 0.8, session=1)
        check(host, q, *left[2:], left[0].shape[1], session=2)
    assert host.drive.check() == []


@pytest.mark.parametrize("kind", FORMATS)
def test_every_instruction_set_gives_the_same_bits(one_isa, kind):
    rng = np.random.default_rng(19)
    host = one_isa()
    k, v, q = halves(rng, 1, 600, 72), halves(rng, 1, 600, 72), halves(rng, 1, 4, 72)
    k, v = store(host, rng, k * np.float16(2.0**-12), v, SPARSE, kind)  # some numbers are subnormal
    check(host, q, k, v, 600)


@pytest.mark.parametrize("kind", RowFormat)
def test_a_drive_without_journal_makes_sum_and_index_again(make_drive, kind):
    host = make_drive(preset="mqsim-default", pages_per_block=2, capacity_bytes=PAGE * 3000)
    rng = np.random.default_rng(12)
    tokens = 300 * (per_group(kind, D) if kind in FORMATS else 32) + 5
    (k_rows, k), (v_rows, v) = (as_stored(halves(rng, 1, tokens, D), kind) for _ in range(2))
    host.store(k_rows, v_rows, options=SPARSE, type=kind)
    host.drive = None
    put(host.path, journal_start(host.path), bytes(1 << 22))
    host.drive = _native.Drive(host.path, "fast", salvage=True)
    host.sequence[1] = 0
    for which, rows in enumerate((k_rows, v_rows)):
        came_back = len(host.drive.rows(1, 0, 0, which).tobytes()) // rows[0, 0].nbytes
        assert came_back > 0
        fields = {"kind": which, "first_token": came_back, "options": SPARSE, "type": kind}
        assert host.append(rows[:, came_back:], **fields).status == OK
    check(host, halves(rng, 1, 4, D), k, v, tokens)
    assert host.drive.check() == []


def test_the_second_copy_of_k_takes_the_bytes_of_binary16(make_drive):
    """Only rows that are indexed by token become fewer: those that are attended to."""
    rng = np.random.default_rng(20)
    rows, q = halves(rng, 1, 4096, D), halves(rng, 1, 4, D)
    whole, small = [], []
    for kind in RowFormat:
        host = make_drive()
        stored = as_stored(rows, kind)[0]
        host.store(stored, stored, options=SPARSE, type=kind)
        before = host.drive.flash_stats()
        host.attend(q, 4096, mode=abi.Mode.SPARF_ATTEND, r=D, k_top=1, local=0)
        after = host.drive.flash_stats()
        whole.append(after["groups_live"] - 2 * (4096 // (per_group(kind, D) if kind in FORMATS else 32)))
        small.append(after["filter_bytes"] - before["filter_bytes"])
    assert set(whole) == {4096 * D * 2 // PAGE}
    assert [bytes_ - small[RowFormat.FP8] for bytes_ in small] == [2 * 64, 2 * 2, 2 * -28, 0]


@pytest.mark.parametrize("mode", [abi.Mode.EXACT, abi.Mode.PARTIAL])
@pytest.mark.parametrize("inline_tokens", [0, 1, 16, 40])
def test_dense_modes_with_inline_tokens(host, mode, inline_tokens):
    rng = np.random.default_rng(inline_tokens)
    heads, group, tokens = 2, 2, 75
    k, v, q = halves(rng, heads, tokens, D), halves(rng, heads, tokens, D), halves(rng, heads, group, D)
    host.store(k, v)
    inline = inline_data(rng, heads, group, inline_tokens, D) if inline_tokens else None
    partial = mode == abi.Mode.PARTIAL
    reply = attend(host, q, tokens, None, inline, 4 if partial else 2, mode=mode)
    records, out = outputs(reply, heads, group, D, np.uint32 if partial else np.uint16)
    for head in range(heads):
        want = golden.attention(
            q[head], k[head], v[head], scale_log2e=golden.scale_bits(None, D), partial=partial,
            inline_scores=inline and inline[0][head], inline_v=inline and inline[1][head],
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
