# SPDX-License-Identifier: Apache-2.0
"""Groups in a plain file, read around the page cache. Few and large reads give the emulator's bits."""

import numpy as np
import pytest
from coded_rows import as_stored
from random_halves import halves

from kvdrive import abi
from kvdrive.nvme.wire import RowFormat

SPARSE = abi.AppendOption.APPEND_SPARSE
OK = abi.NvmeStatus.SUCCESS
PAGE, READ = 4096, 1 << 16


@pytest.fixture
def pair(make_drive):
    """Two equal drives, one with modelled flash and one without."""
    return make_drive(), make_drive(preset="plain", run_groups=16)


def store(hosts, k, v, cuts, options=0, kind=RowFormat.BINARY16):
    for host in hosts:
        for first, last in zip([0, *cuts], [*cuts, k.shape[1]], strict=True):
            host.store(k[:, first:last], v[:, first:last], first_token=first, options=options, type=kind)
        assert host.flush().status == OK  # recently written rows are still in memory


def reads(host, work):
    """The result of `work`, and the number of reads of each size."""
    before = host.drive.read_stats()["sizes"]
    result = work()
    after = host.drive.read_stats()["sizes"]
    return result, {size: count - before.get(size, 0) for size, count in after.items() if count > before.get(size, 0)}


def valid_tokens(rng, tokens):
    """Masks: all tokens; some; those that padding and a window leave."""
    some = rng.random(tokens) < 0.4
    some[tokens // 3] = True
    inside = np.zeros(tokens, bool)
    inside[tokens // 3 : tokens // 2] = True
    return [None, some, inside]


@pytest.mark.parametrize(("d", "tokens"), [(64, 37), (64, 700), (128, 9000), (256, 5001)])
def test_exact_attention_has_the_emulators_bits(pair, d, tokens):
    rng = np.random.default_rng(d + tokens)
    k, v, q = halves(rng, 2, tokens, d), halves(rng, 2, tokens, d), halves(rng, 2, 4, d)
    store(pair, k, v, sorted(rng.integers(1, tokens, 3).tolist()))
    for valid in valid_tokens(rng, tokens):
        for attended in (tokens, tokens - 5):
            mask = None if valid is None else valid[:attended]
            emulated, plain = (host.attend(q, attended, mask) for host in pair)
            assert emulated.status == OK
            np.testing.assert_array_equal(plain.data, emulated.data)
    stats = [host.drive.stats() for host in pair]
    assert stats[0]["staged_bytes_read"] <= stats[1]["staged_bytes_read"]  # more rows wait for whole runs
    assert pair[0].drive.read_stats()["reads"] == 0
    assert pair[1].drive.flash_stats()["device_ns"] == 0


@pytest.mark.parametrize("kind", RowFormat)
@pytest.mark.parametrize("masked", [False, True])
def test_sparf_has_the_emulators_bits(pair, masked, kind):
    rng = np.random.default_rng(3)
    tokens, d = 17000, 64
    (k, _), (v, _) = (as_stored(halves(rng, 2, tokens, d), kind) for _ in range(2))
    q = halves(rng, 2, 4, d)
    store(pair, k, v, [5000, 16900], SPARSE, kind)
    valid = rng.random(tokens) < 0.8 if masked else None
    fields = {"mode": abi.Mode.SPARF_ATTEND, "r": 8, "k_top": 700, "local": 100}
    emulated, plain = (host.attend(q, tokens, valid, **fields) for host in pair)
    assert emulated.status == OK
    np.testing.assert_array_equal(plain.data, emulated.data)
    assert pair[1].drive.read_stats()["reads"] > 0


def test_sparf_reads_and_filters_what_the_emulator_does(pair):
    rng = np.random.default_rng(9)
    heads, tokens, d = 3, 20000, 64
    k, v, q = halves(rng, heads, tokens, d), halves(rng, heads, tokens, d), halves(rng, heads, 4, d)
    store(pair, k, v, [], SPARSE)
    for host in pair:
        host.store(k[:, :4096], v[:, :4096], session=2)  # what follows fills the row
        assert host.flush().status == OK
    fields = {"mode": abi.Mode.SPARF_ATTEND, "r": 4, "k_top": 300, "local": 64}
    found = []
    for host in pair:
        before = host.drive.flash_stats()
        reply, sizes = reads(host, lambda host=host: host.attend(q, tokens, **fields))
        after = host.drive.flash_stats()
        names = ("groups_read", "filter_pages", "filter_pages_left", "filter_rows_kept", "filter_rows_dropped")
        found.append([reply.data.tobytes(), *(after[name] - before[name] for name in (*names, "filter_bytes"))])
    assert found[0] == found[1]
    wanted, read = found[1][1] * PAGE, sum(size * count for size, count in sizes.items())
    assert wanted <= read < 4 * heads * tokens * d  # less than K and V
    assert sum(sizes.values()) * 2 < wanted / PAGE


def test_a_prefilled_context_is_read_in_large_pieces(make_drive):
    rng = np.random.default_rng(1)
    heads, tokens, d = 2, 16384, 128
    host = make_drive(preset="plain", run_groups=16)
    host.store(halves(rng, heads, tokens, d), halves(rng, heads, tokens, d))
    assert host.flush().status == OK
    _, sizes = reads(host, lambda: host.attend(halves(rng, heads, 2, d), tokens))
    assert sizes == {1 << 20: 2 * heads * tokens * 2 * d >> 20}  # each byte of K and V once


def test_tokens_that_came_one_spill_at_a_time_are_read_in_64_kib(make_drive):
    rng = np.random.default_rng(2)
    heads, d, spills = 4, 128, 64
    host = make_drive(preset="plain", run_groups=16)
    for spill in range(spills):
        rows = halves(rng, heads, 16, d)
        host.store(rows, rows, first_token=16 * spill)
    host.store(halves(rng, heads, 4096, d), halves(rng, heads, 4096, d), first_token=16 * spills)  # all rows are full
    assert host.flush().status == OK
    _, sizes = reads(host, lambda: host.attend(halves(rng, heads, 1, d), 16 * spills))
    assert sum(size * count for size, count in sizes.items()) >= 2 * heads * 16 * spills * 2 * d
    assert min(sizes) >= READ


def test_heads_that_were_appended_together_are_read_together(pair):
    rng = np.random.default_rng(6)
    heads, parts, d = 4, 8, 64
    rows = halves(rng, 2, heads, parts * 512, d)  # 64 KiB of a head in each part
    for host in pair:
        for part in range(parts):
            for layer in (0, 1):  # so that the next part lies elsewhere
                k, v = rows[:, :, 512 * part : 512 * (part + 1)]
                host.store(k, v, first_token=512 * part, layer=layer)
        host.store(halves(rng, 1, 16384, d), halves(rng, 1, 16384, d), session=2)  # what follows fills the row
        assert host.flush().status == OK
    q = halves(rng, heads, 2, d)
    reply, sizes = reads(pair[1], lambda: pair[1].attend(q, parts * 512))
    assert sizes == {2 * heads * READ: parts}  # K and V of all heads
    np.testing.assert_array_equal(reply.data, pair[0].attend(q, parts * 512).data)


def test_what_padding_and_windows_leave_out_is_not_read(make_drive):
    rng = np.random.default_rng(4)
    tokens, d = 8192, 64
    host = make_drive(preset="plain", run_groups=16)
    rows, q = halves(rng, 1, tokens, d), halves(rng, 1, 1, d)
    host.store(rows, rows)
    host.store(halves(rng, 1, 16384, d), halves(rng, 1, 16384, d), session=2)  # what follows fills the row
    assert host.flush().status == OK
    valid = np.zeros(tokens, bool)
    valid[1000:3000] = True
    _, sizes = reads(host, lambda: host.attend(q, tokens, valid))
    groups = -(-3000 // 32) - 1000 // 32
    assert sizes == {groups * PAGE: 2}


def test_the_page_cache_is_used_up_to_its_limit_only(make_drive):
    rng = np.random.default_rng(5)
    tokens, d = 4096, 64
    rows, q = halves(rng, 1, tokens, d), halves(rng, 1, 2, d)
    host = make_drive(preset="plain", cache_bytes=2 * rows.nbytes)
    host.store(rows, rows)
    cached, sizes = reads(host, lambda: host.attend(q, tokens))
    assert sizes == {}
    host.store(rows, rows, session=2)  # now they do not fit
    assert host.flush().status == OK
    around, sizes = reads(host, lambda: host.attend(q, tokens))
    assert sum(size * count for size, count in sizes.items()) == 2 * rows.nbytes
    np.testing.assert_array_equal(around.data, cached.data)


@pytest.mark.parametrize(
    ("mode", "cache_bytes", "group"),
    [
        ("exact", 0, 100),  # K
        ("exact", 0, 600),  # V
        ("exact", 1 << 30, 100),
        ("exact", 1 << 30, 600),
        ("sparf", 0, 100),
        ("sparf", 0, 300),  # index of K
        ("sparf", 0, 600),
    ],
)
def test_a_changed_byte_is_found(make_drive, mode, cache_bytes, group):
    rng = np.random.default_rng(6)
    tokens, d = 8192, 64
    rows, q = halves(rng, 1, tokens, d), halves(rng, 1, 2, d)
    host = make_drive(preset="plain", cache_bytes=cache_bytes)
    host.store(rows, rows, options=SPARSE)
    fields = {} if mode == "exact" else {"mode": abi.Mode.SPARF_ATTEND, "r": 64, "k_top": 4000}
    assert host.attend(q, tokens, **fields).status == OK
    host.reopen()
    with host.path.open("r+b") as file:
        file.seek(host.drive.layout()["unit_offset"] + group * PAGE + 17)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    assert host.attend(q, tokens, **fields).status == abi.NvmeStatus.UNRECOVERED_READ
    assert host.drive.flash_stats()["lost_groups"] == 1
    assert len(host.drive.check()) > 0


def test_an_injected_read_error_is_reported_once(make_drive):
    rng = np.random.default_rng(7)
    rows, q = halves(rng, 1, 8192, 64), halves(rng, 1, 1, 64)
    host = make_drive(preset="plain")
    host.store(rows, rows)
    assert host.flush().status == OK
    host.drive.inject("read_uncorrectable", after=300)
    assert host.attend(q, 8192).status == abi.NvmeStatus.UNRECOVERED_READ
    assert host.attend(q, 8192).status == OK


def test_a_number_that_is_not_finite_ends_the_command_between_its_heads(pair):
    """The engine does not read the rest of K and V. The next command is not affected."""
    rng = np.random.default_rng(8)
    k, q = halves(rng, 3, 9000, 64), halves(rng, 3, 2, 64)
    store(pair, k, k, [])
    bad = q.copy()
    bad[1, 0, 0] = np.inf
    for host in pair:
        assert host.attend(bad, 9000).status == abi.NvmeStatus.VALUE_NOT_FINITE
    emulated, plain = (host.attend(q, 9000) for host in pair)
    np.testing.assert_array_equal(plain.data, emulated.data)


def test_values_that_binary64_cannot_decide_are_fetched_again(pair):
    """V has two values whose mean is half-way between two binary16 numbers: only the exact sum decides the tie."""
    tokens, d = 8192, 64
    k, q = np.zeros((1, tokens, d), np.float16), np.ones((1, 1, d), np.float16)
    v = np.ones((1, tokens, d), np.float16)
    v[:, ::2] += np.float16(2**-10)
    store(pair, k, v, [])
    emulated = pair[0].attend(q, tokens)
    plain, sizes = reads(pair[1], lambda: pair[1].attend(q, tokens))
    np.testing.assert_array_equal(plain.data, emulated.data)
    assert sum(size * count for size, count in sizes.items()) == 3 * v.nbytes  # K, V and V again


def test_plain_is_no_flash_preset():
    from kvdrive._native import presets

    assert "plain" not in presets()
