# SPDX-License-Identifier: Apache-2.0
"""Every group and head dimension that a command takes gives the golden model's bits, on every path to K and V."""

import numpy as np
import pytest
from answers import inline_data, result_bytes, split_result
from coded_rows import as_stored
from pairs import in_pairs
from random_halves import halves

import golden
from golden.sparf import sparf
from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.kernels.rtl import prepare_drives
from kvdrive.nvme.wire import RowFormat

OK = abi.NvmeStatus.SUCCESS
SPARSE = abi.AppendOption.APPEND_SPARSE
SPARF = {"mode": abi.Mode.SPARF_ATTEND, "r": 6, "k_top": 25, "local": 4}
# Around the page cache: a drive without a flash model whose cache is smaller than what it holds.
PATHS = {
    "page cache": {},
    "streamed": {"preset": "plain", "cache_bytes": 0},
    "copied": {"engine": "hls"},
}


def ask(host, q, tokens, out, valid=None, inline=None, **fields):
    """The records' fields and the outputs of a command that must succeed."""
    extra = {} if inline is None else {"extra": inline[2], "inline_tokens": inline[0].shape[2]}
    ticket = host.submit(q, tokens, valid, **extra, **fields)
    assert ticket.status == OK
    reply = host.fetch(ticket.result, result_bytes(q, out))
    assert reply.status == OK
    return split_result(reply.data, q, out)


def check_every_mode(host, rng, group, d, heads=2, tokens=150, masked=True, kind=RowFormat.BINARY16):
    """Exact attention and SparF, each with mask and inline tokens, and partial attention equal the golden model."""
    (k_rows, k), (v_rows, v) = (as_stored(halves(rng, heads, tokens, d), kind) for _ in range(2))
    q = halves(rng, heads, group, d)
    host.store(k_rows, v_rows, options=SPARSE, type=kind)
    host.flush()
    valid = rng.random(tokens) < 0.8 if masked else None
    packed = None if valid is None else np.packbits(valid, bitorder="little")
    inline = inline_data(rng, heads, group, 5, d)
    for mode, out_type in ((abi.Mode.EXACT, np.uint16), (abi.Mode.PARTIAL, np.uint32)):
        records, out = ask(host, q, tokens, out_type, valid, inline, mode=mode)
        for head in range(heads):
            want = golden.attention(
                q[head], k[head], v[head], scale_log2e=golden.scale_bits(None, d), valid=packed,
                inline_scores=inline[0][head], inline_v=inline[1][head], partial=mode == abi.Mode.PARTIAL,
            )  # fmt: skip
            assert want.status == 0
            np.testing.assert_array_equal(out[head], want.out.view(out_type))
            np.testing.assert_array_equal(records["max"][head], want.max)
            np.testing.assert_array_equal(records["sum"][head], want.sum)
    records, out = ask(host, q, tokens, np.uint16, valid, inline, **SPARF)
    for head in range(heads):
        want = sparf(
            q[head], k[head], v[head], r=SPARF["r"], k_top=SPARF["k_top"], local=SPARF["local"], valid=packed,
            inline_scores=inline[0][head], inline_v=inline[1][head],
        )  # fmt: skip
        assert want.status == 0
        np.testing.assert_array_equal(out[head], want.out.view(np.uint16))
        np.testing.assert_array_equal(records["alpha"][head], want.alpha)
        np.testing.assert_array_equal(records["sum"][head], want.sum)


@pytest.mark.parametrize("group", [*range(1, 17), 24, 64, 128])
def test_every_group_equals_golden(host, group):
    check_every_mode(host, np.random.default_rng(group), group, (32, 64, 40)[group % 3])


@pytest.mark.parametrize("d", [8, 16, 24, 40, 72, 80, 120, 136, 248, 256])
def test_every_head_dimension_equals_golden(host, d):
    check_every_mode(host, np.random.default_rng(d), (1, 3, 4, 7)[d % 3], d, tokens=600)


@pytest.mark.parametrize("group", [3, 6, 7, 10, 16])
def test_compiled_kernels_take_every_group(make_drive, group):
    """Groups of 3, 6, 7 use the next built group with zero heads; 10 and 16 take two calls. SparF chooses once."""
    check_every_mode(make_drive(engine="hls"), np.random.default_rng(group), group, 32, heads=1)


@pytest.mark.parametrize(("group", "d"), [(1, 8), (4, 40), (3, 80), (9, 24)])
def test_compiled_kernels_take_every_head_dimension(make_drive, group, d):
    check_every_mode(make_drive(engine="hls"), np.random.default_rng(d), group, d, heads=1)


@in_pairs({"kind": RowFormat, "path": PATHS, "group, d": [(3, 40), (12, 64), (16, 88)], "masked": [True, False]})
def test_every_path_to_the_rows(make_drive, path, group, d, masked, kind):
    host = make_drive(**PATHS[path])
    tokens = 600 if path != "streamed" else 2600 if kind == RowFormat.BINARY16 else 5200  # enough to fill a write
    check_every_mode(host, np.random.default_rng([group, d]), group, d, tokens=tokens, masked=masked, kind=kind)
    assert (host.drive.read_stats()["reads"] > 0) == (path == "streamed")


@pytest.mark.parametrize("one_isa", ["scalar", "avx2"], indirect=True)
def test_other_instruction_sets(one_isa):
    for group, d in ((1, 8), (3, 24), (6, 40), (7, 88), (13, 72)):
        check_every_mode(one_isa(), np.random.default_rng(d), group, d)


@pytest.mark.parametrize("group", [0, 17, 23, 129, 136, 255])
def test_other_groups_are_refused(host, group):
    rng = np.random.default_rng(1)
    host.store(halves(rng, 1, 20, 64), halves(rng, 1, 20, 64))
    assert host.submit(halves(rng, 1, group, 64), 20).status == abi.NvmeStatus.INVALID_FIELD


@pytest.mark.parametrize("d", [4, 12, 100, 264])
def test_other_head_dimensions_are_refused(host, d):
    assert host.append(halves(np.random.default_rng(1), 1, 20, d)).status == abi.NvmeStatus.INVALID_FIELD


def test_a_query_that_is_not_finite_fails_all_its_calls(make_drive):
    """The query takes two calls of a kernel. The second call fails, and no output of the first one remains."""
    rng = np.random.default_rng(2)
    for engine in ("fast", "hls"):
        host = make_drive(engine=engine)
        q = halves(rng, 1, 16, 32)
        host.store(halves(rng, 1, 20, 32), halves(rng, 1, 20, 32))
        q[0, 12, 3] = np.inf
        reply = host.fetch(host.submit(q, 20).result, result_bytes(q))
        assert reply.status == abi.NvmeStatus.VALUE_NOT_FINITE
        assert reply.data.size == 0


def test_rows_of_any_head_dimension_survive_the_drive(host):
    rng = np.random.default_rng(3)
    stored = {d: halves(rng, 1, 900, d) for d in (8, 40, 248)}
    for d, rows in stored.items():
        host.store(rows, rows, session=d, options=SPARSE)
    host.reopen()
    for d, rows in stored.items():
        assert host.drive.rows(d, 0, 0, 0).tobytes() == rows.tobytes()
    assert host.drive.check() == []


def test_device_time_of_a_group_is_that_of_the_kernel_calls_it_takes(make_drive):
    """Times as the compiled kernels would take: 3 heads cost as much as 4, 16 twice as much as 8, 40 columns as 64."""
    rng = np.random.default_rng(4)

    def cycles(group, d):
        host = make_drive()
        host.store(halves(rng, 1, 700, d), halves(rng, 1, 700, d))
        ask(host, halves(rng, 1, group, d), 700, np.uint16)
        return host.drive.flash_stats()["engine_cycles"]

    assert cycles(3, 64) == cycles(4, 64)
    assert cycles(16, 64) == 2 * cycles(8, 64)
    assert cycles(4, 40) == cycles(4, 64)


@pytest.mark.slow
@pytest.mark.parametrize("group", [3, 9])
def test_rtl_takes_groups_that_no_kernel_is_built_for(make_drive, group):
    """A group of 3 uses the kernel of 4 with a zero head. 9 heads take two calls, of 8 and of 1."""
    try:
        prepare_drives(group)
    except UnsupportedError as error:
        pytest.skip(str(error))
    check_every_mode(make_drive(engine="rtl"), np.random.default_rng(group), group, 40, heads=1)
