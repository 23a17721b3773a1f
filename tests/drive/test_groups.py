# SPDX-License-Identifier: Apache-2.0
"""Policy groups in the drive equals the golden model, bit for bit, for every way of storing rows."""

import itertools
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from answers import inline_data
from coded_rows import FORMATS, decode, encode
from disk import forge
from once import once
from pairs import in_pairs
from random_halves import halves

from golden.group_index import build_index, index_exponent
from golden.groups import groups as golden_groups
from golden.groups import units_of
from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.kernels.rtl import prepare_drives
from kvdrive.nvme.wire import RowFormat

groups = once(golden_groups)
D = 64
GROUPS = abi.AppendOption.APPEND_GROUPS
OK = abi.NvmeStatus.SUCCESS


def store(host, rng, k, v, options=GROUPS, **fields):
    """Store K and V in three pieces. Returns the tokens of the first one."""
    cuts = [0, *sorted(rng.integers(1, k.shape[1], 2).tolist()), k.shape[1]]
    for first, last in itertools.pairwise(cuts):
        if first < last:
            host.store(k[:, first:last], v[:, first:last], first_token=first, options=options, **fields)
    return cuts[1]


def ask(host, q, tokens, valid=None, inline=None, *, unit=32, k_top=4, **fields):
    """The records and outputs of a command over the first `tokens` tokens."""
    heads, group, d = q.shape
    inline_tokens, extra = (0, None) if inline is None else (inline[0].shape[2], inline[2])
    how = {"mode": abi.Mode.GROUPS, "r": unit, "k_top": k_top}
    ticket = host.submit(q, tokens, valid, extra=extra, inline_tokens=inline_tokens, **(how | fields))
    assert ticket.status == OK
    records = -(-group // 8) * heads
    reply = host.fetch(ticket.result, records * abi.AttentionResult.itemsize + q.size * 2)
    assert reply.status == OK
    found = reply.data[: records * abi.AttentionResult.itemsize].view(abi.AttentionResult)
    return found, reply.data[found.nbytes :].view(np.uint16).reshape(heads, group, d)


def check(host, q, k, v, tokens, first, valid=None, inline=None, *, unit=32, k_top=4, limit=0, **fields):
    """Compare a command's answer with the golden model's; `first`: tokens of the first append."""
    records, out = ask(host, q, tokens, valid, inline, unit=unit, k_top=k_top, local=limit, **fields)
    for head in range(len(q)):
        want = groups(
            q[head], k[head, :tokens], v[head, :tokens], unit=unit, k_top=k_top, limit=limit,
            exponent=index_exponent(k[head, :first]),
            valid=None if valid is None else np.packbits(valid, bitorder="little"),
            inline_scores=inline and inline[0][head], inline_v=inline and inline[1][head],
        )  # fmt: skip
        assert want.status == 0
        np.testing.assert_array_equal(out[head], want.out.view(np.uint16))
        of_head = records[head * (len(records) // len(q)) :][: len(records) // len(q)]
        group = q.shape[1]
        np.testing.assert_array_equal(of_head["max"].reshape(-1)[:group], want.max)
        np.testing.assert_array_equal(of_head["sum"].reshape(-1)[:group], want.sum)
        left = of_head["alpha"].reshape(-1)[:group]
        np.testing.assert_array_equal(left, want.left.astype(np.float32).view(np.uint32))
    return records


# tokens, attended tokens, unit, units to choose, mask, inline tokens
CASES = {
    "whole spans": (640, 640, 32, 5, False, 0),
    "an incomplete span": (651, 651, 32, 5, False, 0),
    "less than a span": (20, 20, 32, 1, False, 3),
    "a prefix": (900, 301, 16, 7, False, 0),
    "units that span several pages of K": (1311, 1311, 128, 3, False, 0),
    "a mask": (600, 600, 64, 4, True, 0),
    "inline tokens": (700, 700, 32, 3, False, 5),
    "everything": (1500, 1483, 16, 11, True, 33),
    "more units than there are": (333, 333, 32, 500, False, 0),
}


@pytest.mark.parametrize("engine", ["fast", "hls"])
@pytest.mark.parametrize("case", CASES)
def test_groups_equals_golden(make_drive, case, engine):
    stored, tokens, unit, k_top, masked, inline_tokens = CASES[case]
    rng = np.random.default_rng(stored)
    host = make_drive(engine=engine)
    heads, group = 2, 4
    k, v, q = halves(rng, heads, stored, D), halves(rng, heads, stored, D), halves(rng, heads, group, D)
    first = store(host, rng, k, v)
    valid = rng.random(tokens) < 0.7 if masked else None
    inline = inline_data(rng, heads, group, inline_tokens, D) if inline_tokens else None
    indexed = tokens // 32 * 32
    k_top_golden = max(1, min(k_top, units_of(indexed, unit)))
    records, out = ask(host, q, tokens, valid, inline, unit=unit, k_top=k_top)
    again = check(host, q, k, v, tokens, first, valid, inline, unit=unit, k_top=k_top_golden)
    np.testing.assert_array_equal(records, again)
    assert out.any()


@pytest.mark.parametrize("engine", ["fast", "hls"])
def test_only_inline_tokens_are_valid(make_drive, engine):
    """No stored token is attended to, and the answer is that of exact attention."""
    rng = np.random.default_rng(13)
    host = make_drive(engine=engine)
    k, v, q = halves(rng, 2, 700, D), halves(rng, 2, 700, D), halves(rng, 2, 4, D)
    host.store(k, v, options=GROUPS)
    nothing, inline = np.zeros(700, np.bool_), inline_data(rng, 2, 4, 5, D)
    _, out = ask(host, q, 700, nothing, inline, unit=32, k_top=3)
    exact = ask(host, q, 700, nothing, inline, mode=abi.Mode.EXACT, unit=0, k_top=0)[1]
    np.testing.assert_array_equal(out, exact)
    assert out.any()


# limit, group, mask, inline tokens
LIMITS = {
    "nothing may be left": (1, 4, False, 0),
    "a tenth": (6554, 4, False, 5),
    "a tenth, a mask": (6554, 1, True, 3),
    "more query heads than a record holds": (20000, 12, False, 0),
    "nearly all": (65535, 4, False, 0),
}


@pytest.mark.parametrize("engine", ["fast", "hls"])
@pytest.mark.parametrize("case", LIMITS)
def test_a_limit_of_what_is_left_unread(make_drive, case, engine):
    limit, group, masked, inline_tokens = LIMITS[case]
    rng = np.random.default_rng(limit)
    host = make_drive(engine=engine)
    k, v, q = halves(rng, 2, 1300, D), halves(rng, 2, 1300, D), halves(rng, 2, group, D)
    first = store(host, rng, k, v)
    valid = rng.random(1300) < 0.7 if masked else None
    inline = inline_data(rng, 2, group, inline_tokens, D) if inline_tokens else None
    check(host, q, k, v, 1300, first, valid, inline, unit=16, k_top=3, limit=limit)


def test_easy_queries_read_less_than_hard_ones(host):
    """The easy query finds all of its mass in one unit; the hard one has the same score for all tokens."""
    rng = np.random.default_rng(15)
    k, v = np.zeros((1, 4096, D), np.float16), halves(rng, 1, 4096, D)
    k[0, 64:96] = 1
    host.store(k, v, options=GROUPS)
    read = {}
    for name, size in (("easy", 8), ("hard", 0)):
        q = np.full((1, 2, D), size, np.float16)
        before, jobs = host.drive.flash_stats()["groups_read"], host.drive.stats()["attention_jobs"]
        check(host, q, k, v, 4096, 4096, unit=32, k_top=8, limit=32768)
        after = host.drive.flash_stats()["groups_read"]
        read[name] = after - before, host.drive.stats()["attention_jobs"] - jobs
    assert read["easy"] == (20 + 2 * 8, 2)
    assert read["hard"] == (20 + 2 * 93, 2 + 6)  # choices of 8, 12, 18, 27, 41, 62 and 93 of 128 units


@pytest.mark.parametrize("d", [8, 32, 40, 80, 96, 128, 200, 256])
def test_head_dimensions(one_isa, d):
    rng = np.random.default_rng(d)
    host = one_isa()
    k, v, q = halves(rng, 1, 1000, d), halves(rng, 1, 1000, d), halves(rng, 1, 3, d)
    first = store(host, rng, k, v)
    check(host, q, k, v, 1000, first, unit=32, k_top=4)


@pytest.mark.parametrize("group", [1, 5, 8, 12, 40])
def test_groups_of_query_heads(host, group):
    rng = np.random.default_rng(group)
    k, v, q = halves(rng, 1, 500, D), halves(rng, 1, 500, D), halves(rng, 1, group, D)
    first = store(host, rng, k, v)
    check(host, q, k, v, 500, first)


def test_the_index_is_stored_as_the_golden_model_builds_it(make_drive):
    """The index takes pages without gaps; it survives a remount, a fork and a trim, and grows after them."""
    rng = np.random.default_rng(1)
    host = make_drive()
    k, v, q = halves(rng, 2, 1600, D), halves(rng, 2, 1600, D), halves(rng, 2, 4, D)
    first = store(host, rng, k[:, :1000], v[:, :1000])
    check(host, q, k, v, 1000, first)
    host.reopen()
    check(host, q, k, v, 1000, first)
    assert host.fork(1, 2, 777).status == OK
    assert host.trim(1, 650).status == OK
    for session, tokens in ((1, 650), (2, 777)):
        check(host, q, k, v, tokens, first, session=session)
        host.store(k[:, tokens:1600], v[:, tokens:1600], first_token=tokens, options=GROUPS, session=session)
        check(host, q, k, v, 1600, first, session=session)
    assert host.drive.check() == []
    host.reopen()
    for session in (1, 2):
        check(host, q, k, v, 1600, first, session=session)
    assert host.drive.check() == []
    summary = [head for head in host.drive.heads(1) if head["kind"] == abi.KvKind.KEYS]
    assert [head["indexed"] for head in summary] == [1600, 1600]
    assert [head["index_exponent"] for head in summary] == [index_exponent(k[h, :first]) for h in range(2)]


@in_pairs({"engine": ["fast", "hls"], "preset": ["", "plain"], "kind": FORMATS})
def test_rows_in_8_and_4_bits(make_drive, kind, preset, engine):
    """Index, choice and attention are those of the numbers that the rows stand for."""
    rng = np.random.default_rng(18)
    host = make_drive(engine=engine, preset=preset)
    coded = [encode(halves(rng, 2, 1100, D), kind) for _ in range(2)]
    k, v = (decode(rows, kind, D) for rows in coded)
    q = halves(rng, 2, 4, D)
    for first, last in ((0, 400), (400, 1000)):
        host.store(*(rows[:, first:last] for rows in coded), first_token=first, options=GROUPS, type=kind)
    check(host, q, k, v, 1000, 400, unit=16, k_top=9)
    check(host, q, k, v, 900, 400, rng.random(900) < 0.7, inline_data(rng, 2, 4, 5, D), unit=64, k_top=4)
    assert host.fork(1, 2, 777).status == OK
    assert host.trim(1, 650).status == OK
    host.reopen()
    for session, tokens in ((1, 650), (2, 777)):
        host.store(*(r[:, tokens:] for r in coded), first_token=tokens, options=GROUPS, type=kind, session=session)
        check(host, q, k, v, 1100, 400, unit=32, k_top=5, session=session)
    assert host.drive.check() == []


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("d", [8, 72, 128, 256])
def test_rows_in_8_and_4_bits_of_any_head_dimension(host, kind, d):
    rng = np.random.default_rng(d)
    coded = [encode(halves(rng, 1, 700, d), kind) for _ in range(2)]
    k, v = (decode(rows, kind, d) for rows in coded)
    host.store(*coded, options=GROUPS, type=kind)
    check(host, halves(rng, 1, 3, d), k, v, 700, 700, unit=32, k_top=4)


def test_fewer_pages_are_read_in_8_and_4_bits(make_drive):
    """Of the same units. The index of 4096 tokens takes 20 pages in each format."""
    rng = np.random.default_rng(19)
    tokens, k_top = 4096, 8
    rows, q = halves(rng, 1, tokens, D), halves(rng, 1, 4, D)
    reads = []
    for kind in (RowFormat.BINARY16, *FORMATS):
        host = make_drive()
        coded = rows if kind == RowFormat.BINARY16 else encode(rows, kind)
        host.store(coded, coded, options=GROUPS, type=kind)
        before = host.drive.flash_stats()["groups_read"]
        ask(host, q, tokens, unit=128, k_top=k_top)
        reads.append(host.drive.flash_stats()["groups_read"] - before - 20)
    assert reads[0] == 2 * k_top * 4
    assert reads[0] == 2 * reads[3], "units of 128 tokens are whole pages of fp8, too"
    assert reads[0] > 1.2 * reads[1] > 1.5 * reads[2] >= 1.5 * 2 * k_top


def test_saturated_channels_are_counted(host):
    rng = np.random.default_rng(2)
    k = (rng.standard_normal((1, 320, D)) / 8).astype(np.float16)
    k[:, 64:96] *= 1000
    host.store(k[:, :64], k[:, :64], options=GROUPS)
    host.store(k[:, 64:], k[:, 64:], first_token=64, options=GROUPS)
    want = build_index(k[0], index_exponent(k[0, :64])).saturated
    assert want > 0
    assert host.drive.heads(1)[0]["index_saturated"] == want
    q = halves(rng, 1, 2, D)
    check(host, q, k, k, 320, 64)


def test_only_chosen_pages_are_read(host):
    """The index of 4096 tokens takes 20 pages; each chosen unit of 32 tokens is one page of K and one of V."""
    rng = np.random.default_rng(3)
    tokens, k_top = 4096, 16
    k, v, q = halves(rng, 1, tokens, D), halves(rng, 1, tokens, D), halves(rng, 1, 4, D)
    host.store(k, v, options=GROUPS)
    before = host.drive.flash_stats()["groups_read"]
    check(host, q, k, v, tokens, tokens, unit=32, k_top=k_top)
    assert host.drive.flash_stats()["groups_read"] - before == 20 + 2 * k_top
    before = host.drive.flash_stats()["groups_read"]
    check(host, q, k, v, tokens, tokens, unit=32, k_top=tokens // 32)
    assert host.drive.flash_stats()["groups_read"] - before == 2 * 128  # everything is chosen: no index is read


@pytest.mark.parametrize(("d", "unit", "sizes"), [(64, 32, {4096: 6, 16384: 2}), (128, 32, {8192: 6, 32768: 2})])
def test_neighbours_come_in_one_read(make_drive, d, unit, sizes):
    """On the cpu target a run of chosen units takes one read of K and one of V; the index takes none again."""
    rng = np.random.default_rng(20)
    host = make_drive(preset="plain", index_bytes=1 << 20)
    tokens, wanted = 128 * unit, [0, 40, 41, 42, 43, 60, 127]
    k, q = halves(rng, 1, tokens, d) / 64, np.zeros((1, 1, d), np.float16)
    q[..., 0] = 4
    for number in wanted:
        k[:, number * unit : (number + 1) * unit, 0] = 8
    for layer in range(3):  # the first layer leaves the write queue
        host.store(k.astype(np.float16), k.astype(np.float16), options=GROUPS, layer=layer)
    assert host.flush().status == OK
    found = []
    for _ in range(2):
        before = host.drive.read_stats()["sizes"]
        ask(host, q, tokens, unit=unit, k_top=len(wanted))
        after = host.drive.read_stats()["sizes"]
        found.append({size: after[size] - before.get(size, 0) for size in after if after[size] > before.get(size, 0)})
    assert found[1] == sizes
    assert sum(found[0].values()) == sum(sizes.values()) + 1


def test_more_chosen_tokens_than_are_read_at_once(make_drive):
    """Two heads with 7 MiB of chosen K and V each, around the page cache: their first pieces make room for others."""
    rng = np.random.default_rng(24)
    host = make_drive(preset="plain")
    tokens, d = 8192, 256
    k, v = (halves(rng, 2, tokens, d) / 64 for _ in range(2))
    k, v = k.astype(np.float16), v.astype(np.float16)
    host.store(k, v, options=GROUPS)
    assert host.flush().status == OK
    check(host, halves(rng, 2, 1, d), k, v, tokens, tokens, k_top=tokens // 32 - 32)
    assert host.drive.read_stats()["bytes"] > 14 << 20


def test_a_removal_from_the_middle_drops_the_index_until_the_next_append(host):
    rng = np.random.default_rng(4)
    k, v, q = halves(rng, 1, 700, D), halves(rng, 1, 700, D), halves(rng, 1, 2, D)
    host.store(k[:, :640], v[:, :640], options=GROUPS)
    exponent = host.drive.heads(1)[0]["index_exponent"]
    assert host.remove(64, 640).status == OK
    assert host.drive.heads(1)[0]["indexed"] == 0
    left = [np.concatenate([rows[:, :32], rows[:, 96:]], axis=1) for rows in (k, v)]
    ask(host, q, 576)  # all tokens, exactly
    host.store(k[:, 640:], v[:, 640:], first_token=576, options=GROUPS)
    assert host.drive.heads(1)[0]["indexed"] == 608
    assert host.drive.heads(1)[0]["index_exponent"] == exponent
    _, out = ask(host, q, 636)
    want = groups(q[0], left[0][0], left[1][0], unit=32, k_top=4, exponent=exponent)
    np.testing.assert_array_equal(out[0], want.out.view(np.uint16))
    assert host.drive.check() == []


@pytest.mark.parametrize(
    ("fields", "at"),
    [({"r": 0}, "r"), ({"r": 48}, "r"), ({"r": 256}, "r"), ({"k_top": 0}, "k_top")],
)
def test_bad_fields_are_refused(host, fields, at):
    rng = np.random.default_rng(5)
    k, q = halves(rng, 1, 200, D), halves(rng, 1, 2, D)
    host.store(k, k, options=GROUPS)
    reply = host.submit(q, 200, **({"mode": abi.Mode.GROUPS, "r": 32, "k_top": 2} | fields))
    assert reply.status == abi.NvmeStatus.INVALID_FIELD, at


def test_other_options_of_a_head_are_refused(host):
    rng = np.random.default_rng(6)
    k = halves(rng, 1, 40, D)
    host.store(k, k, options=GROUPS)
    for options in (0, abi.AppendOption.APPEND_SPARSE, GROUPS | abi.AppendOption.APPEND_SPARSE):
        assert host.append(k, first_token=40, options=options).status == abi.NvmeStatus.INVALID_FIELD


def test_values_that_are_not_finite_in_q(host):
    rng = np.random.default_rng(7)
    k, q = halves(rng, 1, 400, D), halves(rng, 1, 2, D)
    host.store(k, k, options=GROUPS)
    q[0, 1, 5] = np.inf
    reply = host.attend(q, 400, mode=abi.Mode.GROUPS, r=32, k_top=3)
    assert reply.status == abi.NvmeStatus.VALUE_NOT_FINITE


def test_no_valid_token(host):
    rng = np.random.default_rng(8)
    k, q = halves(rng, 1, 400, D), halves(rng, 1, 2, D)
    host.store(k, k, options=GROUPS)
    reply = host.attend(q, 400, np.zeros(400, np.bool_), mode=abi.Mode.GROUPS, r=32, k_top=3)
    assert reply.status == abi.NvmeStatus.NO_VALID_TOKEN


def test_both_indexes_in_one_head(host):
    """A head may keep what SparF and groups need at the same time."""
    rng = np.random.default_rng(9)
    k, v, q = halves(rng, 1, 800, D), halves(rng, 1, 800, D), halves(rng, 1, 4, D)
    first = store(host, rng, k, v, GROUPS | abi.AppendOption.APPEND_SPARSE)
    check(host, q, k, v, 800, first)
    assert host.attend(q, 800, mode=abi.Mode.SPARF_ATTEND, r=8, k_top=40, local=4).status == OK


def test_an_index_page_that_is_lost(host):
    """A damaged page of the index fails the command, and nothing else."""
    rng = np.random.default_rng(10)
    k, v, q = halves(rng, 1, 2000, D), halves(rng, 1, 2000, D), halves(rng, 1, 2, D)
    host.store(k, v, options=GROUPS)
    host.drive.inject("read_uncorrectable")
    assert host.attend(q, 2000, mode=abi.Mode.GROUPS, r=32, k_top=3).status == abi.NvmeStatus.UNRECOVERED_READ
    check(host, q, k, v, 2000, 2000)


@pytest.mark.parametrize("command", ["trim", "fork"])
def test_an_index_page_that_cannot_be_cut(host, command):
    """TRIM and FORK cut a page of the index. If it is lost, they drop the index, and the next append makes it again."""
    rng = np.random.default_rng(17)
    k, v, q = halves(rng, 1, 2000, D), halves(rng, 1, 2000, D), halves(rng, 1, 2, D)
    host.store(k, v, options=GROUPS)
    host.store(k, v, options=GROUPS, layer=1)  # layer 0 leaves the write queue
    exponent = host.drive.heads(1)[0]["index_exponent"]
    host.drive.inject("read_uncorrectable")
    session, done = (1, host.trim(1, 640)) if command == "trim" else (2, host.fork(1, 2, 640))
    assert done.status == OK
    assert host.drive.flash_stats()["lost_groups"] == 1
    indexed = {head["layer"]: head["indexed"] for head in host.drive.heads(session) if head["kind"] == abi.KvKind.KEYS}
    assert sorted(indexed.values()) == [0, 640]
    lost = min(indexed, key=indexed.__getitem__)
    records, out = ask(host, q, 640, session=session, layer=lost)
    exact = host.attend(q, 640, session=session, layer=lost)
    assert exact.data[records.nbytes :].tobytes() == out.tobytes()
    assert not records["alpha"].any()  # nothing was left out
    for layer in indexed:
        host.store(k[:, 640:], v[:, 640:], first_token=640, options=GROUPS, session=session, layer=layer)
        assert host.drive.heads(session)[0]["index_exponent"] == exponent
        check(host, q, k, v, 2000, 2000, session=session, layer=layer)
    assert host.drive.check() == []


@pytest.mark.parametrize("exponent", [1, abi.MAX_INDEX_EXPONENT + 1])
def test_an_exponent_that_no_index_has_is_refused(make_drive, exponent):
    """A head with fewer tokens than a span has an exponent already."""
    host = make_drive()
    k = np.full((1, 20, D), 2.0**-24, np.float16)
    host.store(k, k, options=GROUPS)
    host.drive = None
    saved = struct.pack("<6IQ", 0xFFFFFFFF, 0, abi.MIN_INDEX_EXPONENT, 0, 0, 0, 0)  # an index without a span
    forge(host.path, saved, 8, struct.pack("<I", exponent))
    with pytest.raises(RuntimeError, match="index is damaged"):
        host.reopen()


@pytest.mark.parametrize("preset", ["", "plain"])
def test_hot_pages_and_the_index_stay_in_memory(make_drive, preset):
    """A second query with the same choice reads nothing. Trims, forks, appends and erases change no answer."""
    rng = np.random.default_rng(11)
    memory = {"hot_bytes": 1 << 20, "index_bytes": 1 << 20}
    host = make_drive(preset=preset, **memory)
    k, v, q = halves(rng, 2, 4000, D), halves(rng, 2, 4000, D), halves(rng, 2, 4, D)
    host.store(k[:, :3000], v[:, :3000], options=GROUPS)
    assert host.flush().status == OK
    reads = []
    for _ in range(2):
        before = host.drive.flash_stats()
        check(host, q, k, v, 3000, 3000, k_top=9)
        after = host.drive.flash_stats()
        reads.append({name: after[name] - before[name] for name in ("groups_read", "hot_hits", "index_hits")})
    assert reads[0] == {"groups_read": reads[0]["groups_read"], "hot_hits": 0, "index_hits": 0}
    assert reads[1]["hot_hits"] + reads[1]["index_hits"] > 0
    queued = host.drive.flash_stats()["groups_queued"]
    assert reads[1]["groups_read"] <= queued  # groups in the write queue are in memory anyway
    assert 0 < after["hot_bytes"] <= 1 << 20
    host.store(k[:, 3000:], v[:, 3000:], first_token=3000, options=GROUPS)
    check(host, q, k, v, 4000, 3000, k_top=9)
    assert host.fork(1, 2, 2500).status == OK
    check(host, q, k, v, 2500, 3000, k_top=9, session=2)
    assert host.trim(1, 1000).status == OK
    host.store(v[:, 1000:], k[:, 1000:], first_token=1000, options=GROUPS)  # other contents in the same places
    swapped = [np.concatenate([a[:, :1000], b[:, 1000:]], axis=1) for a, b in ((k, v), (v, k))]
    for _ in range(2):
        check(host, q, *swapped, 4000, 3000, k_top=9)
    assert host.erase(1).status == OK
    assert host.drive.flash_stats()["hot_bytes"] == host.drive.flash_stats()["index_bytes"] == 0
    check(host, q, k, v, 2500, 3000, k_top=9, session=2)


def test_memory_for_hot_pages_is_bounded(make_drive):
    """With room for fewer pages than a query chooses, the answers are the same and the budget holds."""
    rng = np.random.default_rng(12)
    host = make_drive(hot_bytes=10 * 4096, index_bytes=5 * 4096)
    k, v = halves(rng, 1, 4000, D), halves(rng, 1, 4000, D)
    host.store(k, v, options=GROUPS)
    for seed in range(3):
        q = halves(np.random.default_rng(seed), 1, 4, D)
        check(host, q, k, v, 4000, 4000, k_top=20)
    stats = host.drive.flash_stats()
    assert stats["index_bytes"] == 5 * 4096
    assert stats["hot_bytes"] == 10 * 4096


@pytest.mark.parametrize("unit", [16, 32, 128])
@pytest.mark.parametrize("preset", ["", "plain"])
def test_hot_pages_stay_while_a_head_uses_them(make_drive, preset, unit):
    """A head attends to hot pages where they are, while the pages of the next heads come and fill the budget.

    Units of 16 tokens are half a page, which is copied; so are units that a mask cuts.
    """
    rng = np.random.default_rng(16)
    host = make_drive(preset=preset, hot_bytes=30 * 4096)
    k, v = halves(rng, 3, 1990, D), halves(rng, 3, 1990, D)
    host.store(k, v, options=GROUPS)
    host.store(k, v, options=GROUPS, layer=1)  # layer 0 leaves the write queue
    valid = rng.random(1990) < 0.9
    for query in range(3):
        q = halves(rng, 3, 4, D)
        for mask in (None, None, valid):
            check(host, q, k, v, 1990, 1990, mask, unit=unit, k_top=4 + query)
    stats = host.drive.flash_stats()
    assert stats["hot_hits"] > 0
    assert stats["hot_bytes"] <= 30 * 4096


def hits(host, *query, **fields):
    """How many pages of `ask` were hot, and how many of the index were in memory."""
    before = host.drive.flash_stats()
    ask(host, *query, **fields)
    after = host.drive.flash_stats()
    return tuple(after[name] - before[name] for name in ("hot_hits", "index_hits"))


def test_hot_pages_of_a_command_make_room_for_those_of_the_next_one(make_drive):
    """A command never drops pages that it used itself, so a second run of it finds as many as fit."""
    rng = np.random.default_rng(14)
    host = make_drive(hot_bytes=10 * 4096)
    k, v, queries = halves(rng, 1, 4000, D), halves(rng, 1, 4000, D), [halves(rng, 1, 4, D) for _ in range(2)]
    host.store(k, v, options=GROUPS)
    host.store(k, v, options=GROUPS, layer=1)  # layer 0 leaves the write queue
    for q in queries:
        ask(host, q, 4000, k_top=20)
        assert hits(host, q, 4000, k_top=20)[0] == 10


@pytest.mark.parametrize("command", ["trim", "erase"])
def test_pages_of_a_session_that_ended_make_room_for_others(make_drive, command):
    """A budget for the index that one session fills serves the next one, too."""
    rng = np.random.default_rng(15)
    host = make_drive(hot_bytes=1 << 20, index_bytes=20 * 4096)
    k, q = halves(rng, 1, 4096, D), halves(rng, 1, 4, D)
    for session in (1, 2):
        host.store(k, k, options=GROUPS, session=session)
        host.store(k, k, options=GROUPS, session=session, layer=1)  # layer 0 leaves the write queue
        ask(host, q, 4096, session=session)
        assert hits(host, q, 4096, session=session) == (8, 20)
        assert getattr(host, command)(session).status == OK
        stats = host.drive.flash_stats()
        assert stats["hot_bytes"] == stats["index_bytes"] == 0


def test_pages_that_move_are_read_again(make_drive):
    """Garbage collection moves groups to other units, and new ones take theirs."""
    rng = np.random.default_rng(13)
    host = make_drive(capacity_bytes=1 << 22, pages_per_block=8, hot_bytes=1 << 20, index_bytes=1 << 20)
    k, v, q = halves(rng, 1, 4000, D), halves(rng, 1, 4000, D), halves(rng, 1, 2, D)
    host.store(k, v, options=GROUPS)
    for round_number in range(40):
        rows = halves(rng, 1, 3000, D)
        host.sequence[9] = 0
        assert host.append(rows, session=9).status == OK
        check(host, q, k, v, 4000, 4000, k_top=30)
        assert host.trim(9).status == OK, round_number
    assert host.drive.flash_stats()["groups_moved"] > 0


def test_pages_that_moved_make_room_for_others(make_drive):
    """What garbage collection moves is forgotten in its old place, so a full budget serves the new one."""
    rng = np.random.default_rng(16)
    host = make_drive(capacity_bytes=1 << 22, pages_per_block=8, index_bytes=20 * 4096)
    k, q = halves(rng, 1, 4096, D), halves(rng, 1, 2, D)
    host.store(k, k, options=GROUPS)
    for _ in range(40):
        host.sequence[9] = 0
        assert host.append(halves(rng, 1, 3000, D), session=9).status == OK
        ask(host, q, 4096)
        kept = hits(host, q, 4096)[1]
        assert kept * 4096 == host.drive.flash_stats()["index_bytes"]
        assert kept >= 20 - host.drive.flash_stats()["groups_queued"]
        assert host.trim(9).status == OK
    assert host.drive.flash_stats()["groups_moved"] > 0


@pytest.fixture(scope="module")
def rtl():
    """The folder of the verilated kernels for one query head. Their first compilation takes minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KVDRIVE_RTL", raising=False)
        try:
            prepare_drives(1)
        except UnsupportedError as error:
            pytest.skip(str(error))
        yield Path(os.environ["KVDRIVE_RTL"])
        patch.delenv("KVDRIVE_RTL")


@pytest.mark.slow
@pytest.mark.parametrize("d", [64, 96])  # the processor chooses for head dimensions that no kernel has
def test_rtl_gives_the_bits_of_the_other_engines(make_drive, rtl, d):
    answers = {}
    for engine in ("rtl", "hls", "fast"):
        rng = np.random.default_rng(16)
        host = make_drive(engine=engine)
        k, v, q = halves(rng, 1, 300, d), halves(rng, 1, 300, d), halves(rng, 1, 1, d)
        first = store(host, rng, k, v)
        valid, inline = rng.random(300) < 0.7, inline_data(rng, 1, 1, 3, d)
        answers[engine] = check(host, q, k, v, 300, first, valid, inline, unit=16, k_top=3, limit=6554).tobytes()
    assert answers["rtl"] == answers["hls"] == answers["fast"]


@pytest.mark.slow
def test_rtl_takes_the_kernel_for_a_choice(make_drive, rtl, tmp_path, monkeypatch):
    """In place of the kernel there is another one, whose ports have other names."""
    (library,) = (rtl / "attention_g1").glob("library-*.so")
    for name in ("attention_g1", "group_choice_g1"):
        (tmp_path / "rtl" / name).mkdir(parents=True)
        (tmp_path / "rtl" / name / library.name).symlink_to(library)
    monkeypatch.setenv("KVDRIVE_RTL", str(tmp_path / "rtl"))
    rng = np.random.default_rng(17)
    host = make_drive(engine="rtl")
    k, q = halves(rng, 1, 300, D), halves(rng, 1, 1, D)
    store(host, rng, k, k)
    assert host.submit(q, 300, mode=abi.Mode.GROUPS, r=32, k_top=4).status == abi.NvmeStatus.INTERNAL_ERROR
