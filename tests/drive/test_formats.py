"""Rows in 8 and 4 bits: the native codec has the golden model's bytes, and attention its bits over decoded rows."""

import numpy as np
import pytest
from answers import inline_data, result_bytes, split_result
from coded_rows import FORMATS, as_stored, decode, encode, per_group
from disk import PAGE, journal_start, put
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pairs import in_pairs
from random_halves import halves

import golden
from golden import formats
from kvdrive import _native, abi
from kvdrive.nvme import wire

FINITE = st.integers(0, 0xFFFF).filter(lambda code: code & 0x7C00 != 0x7C00)


def keep(host, kind, k, v, **fields):
    """Store k and v in a format. Returns their values."""
    stored = encode(k, kind), encode(v, kind)
    host.store(*stored, type=kind, **fields)
    return tuple(decode(one, kind, k.shape[-1]) for one in stored)


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_the_native_codec_has_the_golden_bytes(kind, data):
    d = data.draw(st.sampled_from([8, 24, 32, 64, 80]))
    spread = data.draw(st.sampled_from([0, 0, 8]))  # clear bits of the exponent, so that numbers are closer
    codes = data.draw(arrays(np.uint16, (3, d), elements=FINITE)) & np.uint16(0xFFFF ^ (spread << 10))
    want = formats.encode_rows(codes, FORMATS[kind])
    got = np.zeros_like(want)
    _native.encode_rows(codes, kind, got)
    np.testing.assert_array_equal(got, want)
    values = np.zeros_like(codes)
    _native.decode_rows(got, kind, values)
    np.testing.assert_array_equal(values, formats.decode_rows(want, FORMATS[kind], d).view(np.uint16))
    assert _native.row_bytes(kind, d) == want.shape[1]
    changed = want.copy()
    changed[0, data.draw(st.integers(0, want.shape[1] - 1))] = data.draw(st.integers(0, 255))
    assert _native.valid_rows(changed, kind, d) == formats.is_valid(changed, FORMATS[kind], d)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 300.0])
def test_the_native_codec_agrees_on_usual_rows(kind, scale):
    rng = np.random.default_rng(int(scale))
    rows = (rng.standard_normal((800, 64)) * scale).astype(np.float16)
    got = np.zeros((800, _native.row_bytes(kind, 64)), np.uint8)
    _native.encode_rows(rows.view(np.uint16), kind, got)
    np.testing.assert_array_equal(got, formats.encode_rows(rows, FORMATS[kind]))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("d", "group"), [(8, 1), (40, 3), (64, 4), (128, 1), (256, 8)])
def test_attention_is_that_of_the_decoded_rows(host, check, kind, d, group):
    rng = np.random.default_rng(d)
    tokens = 2 * per_group(kind, d) + 5
    k, v, q = halves(rng, 2, tokens, d), halves(rng, 2, tokens, d), halves(rng, 2, group, d)
    values = keep(host, kind, k, v)
    check(host.attend(q, tokens), q, *values)
    valid = rng.random(tokens) < 0.4
    valid[tokens // 2] = True
    check(host.attend(q, tokens, valid), q, *values, valid)


@in_pairs({"kind": FORMATS, "target": ["emulator", "cpu"], "engine": ["hls", "fast"]})
def test_every_engine_target_and_split_gives_the_same_bits(make_drive, check, kind, engine, target):
    rng = np.random.default_rng(3)
    d, tokens = 64, 300
    k, v, q = halves(rng, 1, tokens, d), halves(rng, 1, tokens, d), halves(rng, 1, 2, d)
    stored = encode(k, kind), encode(v, kind)
    host = make_drive(engine=engine, **({"preset": "plain"} if target == "cpu" else {}))
    for first in range(0, tokens, 47):
        for which in abi.KvKind:
            part = stored[which][:, first : first + 47]
            assert host.append(part, kind=which, first_token=first, type=kind).status == abi.NvmeStatus.SUCCESS
    values = [decode(one, kind, d) for one in stored]
    for end in (1, 61, 62, 63, 113, 226, tokens):
        check(host.attend(q, end), q, *(one[:, :end] for one in values))


@pytest.mark.parametrize(
    ("kind", "d", "group"),
    [
        (wire.RowFormat.INT8, 64, 1),
        (wire.RowFormat.INT8, 128, 4),
        (wire.RowFormat.INT8, 192, 4),
        (wire.RowFormat.INT8, 256, 1),
        (wire.RowFormat.INT4, 64, 1),
        (wire.RowFormat.INT4, 128, 1),
        (wire.RowFormat.INT4, 256, 1),
        (wire.RowFormat.INT4, 64, 4),
        (wire.RowFormat.INT4, 128, 4),
    ],
)
def test_the_kernels_over_codes_give_the_same_bits(make_drive, check, kind, d, group):
    """Pages whose tokens are all masked are not read, and some tokens are staged."""
    rng = np.random.default_rng(d)
    tokens = 3 * per_group(kind, d) + 7
    stored = [any_codes(rng, kind, tokens, d) for _ in range(2)]
    host = make_drive(engine="hls")
    host.store(*stored, type=kind)
    values, q = [decode(one, kind, d) for one in stored], halves(rng, 1, group, d)
    valid = rng.random(tokens) < 0.6
    valid[: 2 * per_group(kind, d)] = False
    for flags in (None, valid):
        check(host.attend(q, tokens, flags), q, *values, flags)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_instruction_set_decodes_the_same(one_isa, check, kind):
    rng = np.random.default_rng(11)
    k, v, q = (halves(rng, 1, n, 72) for n in (70, 70, 4))
    k *= np.float16(2.0**-12)  # some values are subnormal
    host = one_isa()
    values = keep(host, kind, k, v)
    check(host.attend(q, 70), q, *values)


ENDS = {
    wire.RowFormat.INT8: [0x7F, 0x81, 0],
    wire.RowFormat.INT4: [0, 0xFF, 0xF0, 0x0F],
    wire.RowFormat.FP8: [0x7E, 0xFE, 0, 0x80, 1, 0x81, 7, 8],
}


def any_codes(rng, kind, tokens, d):
    """Valid rows of random bytes [1, tokens, row_bytes]: the largest codes and every step are among them."""
    rows = np.zeros((1, tokens, formats.row_bytes(FORMATS[kind], d)), np.uint8)
    ends = np.array(ENDS[kind], np.uint8)
    code_bytes = d // 2 if kind == wire.RowFormat.INT4 else d
    for t in range(tokens):
        while True:
            row = rng.integers(0, 256, rows.shape[2], np.uint8)
            if rng.random() < 0.3:
                row[:code_bytes] = rng.choice(ends, code_bytes)
            if kind == wire.RowFormat.INT8:
                codes = row[:d]
                codes[codes == 0x80] = 0x81
                row[d:] = rng.integers(0, 34, len(row) - d)
            elif kind == wire.RowFormat.FP8:
                row[row & 0x7F == 0x7F] = 0x7E
            else:  # zeros below 113; steps so small that 15 + zero of them fit, or any with a zero near -7
                row[d // 2 + 1 :: 2] = rng.integers(-128, 113, len(row[d // 2 + 1 :: 2])).astype(np.int8).view(np.uint8)
            if formats.is_valid(row[None], FORMATS[kind], d):
                break
        rows[0, t] = row
    return rows


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("d", "group"), [(8, 1), (24, 2), (32, 3), (64, 4), (104, 5), (256, 8)])
def test_any_stored_bytes_have_the_bits_of_their_values(one_isa, check, kind, d, group):
    """Steps of one block differ by up to 2^33, and queries span all magnitudes."""
    rng = np.random.default_rng(d)
    tokens = 135
    stored = any_codes(rng, kind, tokens, d), any_codes(rng, kind, tokens, d)
    host = one_isa()
    host.store(*stored, type=kind)
    values = [decode(one, kind, d) for one in stored]
    usual = halves(rng, 1, group, d)
    wide = (rng.integers(0, 31 << 10, usual.shape) | rng.integers(0, 2, usual.shape) << 15).astype(np.uint16)
    few = rng.choice(np.array([0, 0x8000, 1, 0x8001, 0x3FF, 0x3C00, 0x7BFF, 0xFBFF], np.uint16), usual.shape)
    for q in (usual, usual * np.float16(2.0**-14), wide.view(np.float16), few.view(np.float16)):
        check(host.attend(q, tokens), q, *values)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("sharpness", [0.0, 4.0, 60.0])
def test_probabilities_of_any_spread(one_isa, check, kind, sharpness):
    """Sharp queries spread the probabilities of a block over more bits than a weight has."""
    rng = np.random.default_rng(14)
    d, tokens = 64, 400
    k, v, q = halves(rng, 1, tokens, d), halves(rng, 1, tokens, d), halves(rng, 1, 5, d) * np.float16(sharpness)
    v[0, ::3] *= np.float16(2.0**-9)
    host = one_isa()
    values = keep(host, kind, k, v)
    check(host.attend(q, tokens), q, *values)


@pytest.mark.parametrize("kind", FORMATS)
def test_ties_of_small_integers_are_decided_without_another_sum(one_isa, check, kind):
    """Sums of few bits often lie in the middle between two binary32 numbers, and they are known exactly."""
    rng = np.random.default_rng(15)
    d, tokens = 128, 1000
    k, v = halves(rng, 1, tokens, d), halves(rng, 1, tokens, d)
    q = (rng.integers(-2047, 2048, (1, 4, d)) / np.float16(256)).astype(np.float16)
    host = one_isa()
    values = keep(host, kind, k, v)
    check(host.attend(q, tokens), q, *values)
    assert host.drive.exact_sums() == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_inline_tokens_are_binary16(host, kind):
    rng = np.random.default_rng(4)
    d, tokens = 64, 130
    k, v, q = halves(rng, 1, tokens, d), halves(rng, 1, tokens, d), halves(rng, 1, 2, d)
    values = keep(host, kind, k, v)
    scores, inline_v, extra = inline_data(rng, 1, 2, 5, d)
    ticket = host.submit(q, tokens, extra=extra, inline_tokens=5)
    assert ticket.status == abi.NvmeStatus.SUCCESS
    reply = host.fetch(ticket.result, result_bytes(q))
    want = golden.attention(
        q[0],
        values[0][0],
        values[1][0],
        scale_log2e=golden.scale_bits(None, d),
        inline_scores=scores[0],
        inline_v=inline_v[0],
    )
    np.testing.assert_array_equal(split_result(reply.data, q, np.uint16)[1][0], want.out.view(np.uint16))


@pytest.mark.parametrize(
    ("kind", "less"), [(wire.RowFormat.INT8, 1.9), (wire.RowFormat.INT4, 3.45), (wire.RowFormat.FP8, 1.99)]
)
@pytest.mark.parametrize("d", [64, 128])
def test_pages_read_fall_by(make_drive, kind, less, d):
    rng = np.random.default_rng(5)
    tokens = 1024
    k, v, q = halves(rng, 1, tokens, d), halves(rng, 1, tokens, d), halves(rng, 1, 1, d)
    pages = []
    for one in (wire.RowFormat.BINARY16, kind):
        host = make_drive()
        if one == wire.RowFormat.BINARY16:
            host.store(k, v)
        else:
            keep(host, one, k, v)
        before = host.drive.stats()["pages_read"]
        host.attend(q, tokens)
        pages.append(host.drive.stats()["pages_read"] - before)
    assert pages[0] / pages[1] > less


@pytest.mark.parametrize("kind", FORMATS)
def test_fork_trim_remove_and_a_new_mount_keep_the_values(host, check, kind):
    rng = np.random.default_rng(6)
    d, group = 64, per_group(kind, 64)
    tokens = 4 * group + 9
    k, v, q = halves(rng, 1, tokens, d), halves(rng, 1, tokens, d), halves(rng, 1, 2, d)
    values = keep(host, kind, k, v)
    assert host.fork(1, 2, group + 3).status == abi.NvmeStatus.SUCCESS
    check(host.attend(q, group + 3, session=2), q, *(one[:, : group + 3] for one in values))
    more = keep(host, kind, k[:, :20], v[:, :20], session=2, first_token=group + 3)
    joined = [np.concatenate([a[:, : group + 3], b], axis=1) for a, b in zip(values, more, strict=True)]
    assert host.trim(1, tokens - 5).status == abi.NvmeStatus.SUCCESS
    assert host.remove(group, tokens - 5, group=group).status == abi.NvmeStatus.SUCCESS
    left = [np.concatenate([one[:, :group], one[:, 2 * group : tokens - 5]], axis=1) for one in values]
    for again in (False, True):
        if again:
            host.reopen()
        check(host.attend(q, group + 23, session=2), q, *joined)
        check(host.attend(q, left[0].shape[1]), q, *left)
    assert host.drive.check() == []
    assert {head["format"] for head in host.drive.heads(1)} == {kind}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_drive_without_journal_finds_format_and_rows_in_spares(make_drive, kind):
    host = make_drive(preset="mqsim-default", pages_per_block=2, capacity_bytes=PAGE * 2000)
    rng = np.random.default_rng(12)
    tokens, d = 300 * per_group(kind, 64) + 5, 64
    k, v = halves(rng, 1, tokens, d), halves(rng, 1, tokens, d)
    stored = as_stored(k, kind)[0], as_stored(v, kind)[0]
    host.store(*stored, type=kind)
    host.drive = None
    put(host.path, journal_start(host.path), bytes(1 << 22))
    with pytest.raises(RuntimeError, match="is damaged"):
        host.reopen()
    drive = _native.Drive(host.path, "fast", salvage=True)
    found = {head["kind"]: head for head in drive.heads(1)}
    for which in abi.KvKind:
        assert (found[which]["format"], found[which]["row_bytes"]) == (kind, stored[which].shape[2])
        rows = drive.rows(1, 0, 0, which).tobytes()
        assert len(rows) > 0
        assert stored[which][0].tobytes().startswith(rows)
    assert drive.check() == []


@pytest.mark.parametrize("kind", FORMATS)
def test_a_lost_page_is_reported_and_not_decoded(make_drive, kind):
    host = make_drive(preset="mqsim-default", pages_per_block=2, capacity_bytes=PAGE * 2000)
    rng = np.random.default_rng(13)
    tokens = 300 * per_group(kind, 64)  # more groups than wait in drive memory
    k, v = halves(rng, 1, tokens, 64), halves(rng, 1, tokens, 64)
    host.store(as_stored(k, kind)[0], as_stored(v, kind)[0], type=kind)
    host.drive.inject("read_uncorrectable")
    q = halves(rng, 1, 1, 64)
    submitted = host.submit(q, tokens)
    assert submitted.status == abi.NvmeStatus.SUCCESS
    assert host.fetch(submitted.result, result_bytes(q)).status == abi.NvmeStatus.UNRECOVERED_READ


@pytest.mark.parametrize("kind", FORMATS)
def test_a_read_returns_the_rows_as_they_were_appended(host, kind):
    rng = np.random.default_rng(7)
    rows = encode(halves(rng, 2, 150, 64), kind)
    host.store(rows, rows, type=kind)
    size = rows[:, 3:140].size
    entry = host.entry("read", session=1, heads=2, first_token=3, tokens=137, row_bytes=rows.shape[2])
    reply = host.raw(entry)
    assert reply.status == abi.NvmeStatus.SUCCESS
    assert reply.data.size == size
    np.testing.assert_array_equal(reply.data.reshape(2, 137, -1), rows[:, 3:140])


def test_a_head_keeps_its_format(host):
    rng = np.random.default_rng(8)
    rows = halves(rng, 1, 10, 64)
    kind = wire.RowFormat.INT8
    assert host.append(encode(rows, kind), type=kind).status == abi.NvmeStatus.SUCCESS
    assert host.append(rows, first_token=10).status == abi.NvmeStatus.ROW_MISMATCH
    for other in set(FORMATS) - {kind}:
        assert host.append(encode(rows, other), type=other, first_token=10).status == abi.NvmeStatus.ROW_MISMATCH
    # 66 bytes are also 32 numbers of binary16 and one more, which is no head dimension
    assert host.append(encode(rows, kind), first_token=10).status == abi.NvmeStatus.INVALID_FIELD
    assert host.append(rows, kind=abi.KvKind.VALUES).status == abi.NvmeStatus.SUCCESS
    q = halves(rng, 1, 1, 64)
    assert host.submit(q, 10).status == abi.NvmeStatus.ROW_MISMATCH


def test_unknown_formats_and_sizes_are_refused(host):
    rows = encode(halves(np.random.default_rng(9), 1, 4, 64), wire.RowFormat.INT8)
    assert host.append(rows, type=max(wire.RowFormat) + 1).status == abi.NvmeStatus.INVALID_FIELD
    for kind in (wire.RowFormat.INT8, wire.RowFormat.FP8):
        assert host.append(rows[..., :65], type=kind).status == abi.NvmeStatus.INVALID_FIELD
    assert host.drive.sessions() == []


@pytest.mark.parametrize(
    ("kind", "code"), [(wire.RowFormat.INT8, 0x80), (wire.RowFormat.FP8, 0x7F), (wire.RowFormat.FP8, 0xFF)]
)
def test_codes_without_a_number_are_refused(host, kind, code):
    wrong = encode(halves(np.random.default_rng(9), 1, 4, 64), kind)
    wrong[0, 2, 5] = code
    assert host.append(wrong, type=kind).status == abi.NvmeStatus.VALUE_NOT_FINITE
    assert host.drive.sessions() == []
