"""Attention over appended rows gives the golden model's bits, for any sizes of the appended pieces."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from random_halves import halves

from kvdrive import abi


def append_in_pieces(host, rng, k, v, **fields):
    """Append k and v [heads, tokens, d] in random pieces, with K and V interleaved at random."""
    done = [0, 0]
    while min(done) < k.shape[1]:
        kind = int(rng.integers(2)) if max(done) < k.shape[1] else int(done[0] == k.shape[1])
        piece = (k, v)[kind][:, done[kind] : done[kind] + int(rng.integers(1, 90))]
        reply = host.append(piece, kind=kind, first_token=done[kind], **fields)
        assert reply.status == abi.NvmeStatus.SUCCESS
        done[kind] += piece.shape[1]
        per_page = 4096 // (2 * k.shape[2])
        assert reply.result == done[kind] // per_page * per_page


@pytest.mark.parametrize(("d", "group"), [(32, 8), (64, 4), (96, 5), (128, 1), (160, 2), (256, 2)])
def test_attention_equals_golden(host, check, d, group):
    rng = np.random.default_rng(d)
    heads, tokens = 2, 4096 // (2 * d) * 3 + 5
    k, v, q = halves(rng, heads, tokens, d), halves(rng, heads, tokens, d), halves(rng, heads, group, d)
    append_in_pieces(host, rng, k, v)
    check(host.attend(q, tokens), q, k, v)


def test_compiled_kernels_give_the_same_bits(make_drive, check):
    rng = np.random.default_rng(5)
    k, v, q = halves(rng, 1, 70, 64), halves(rng, 1, 70, 64), halves(rng, 1, 4, 64)
    host = make_drive(engine="hls")
    append_in_pieces(host, rng, k, v)
    check(host.attend(q, 70), q, k, v)


@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 64, 70])
def test_a_prefix_can_be_attended(host, check, tokens):
    rng = np.random.default_rng(tokens)
    k, v, q = halves(rng, 1, 70, 64), halves(rng, 1, 70, 64), halves(rng, 1, 2, 64)
    host.store(k, v)
    check(host.attend(q, tokens), q, k[:, :tokens], v[:, :tokens])


@pytest.mark.parametrize("tokens", [7, 70, 512, 600])
def test_validity_mask_excludes_tokens(host, check, tokens):
    rng = np.random.default_rng(tokens)
    k, v, q = halves(rng, 2, tokens, 32), halves(rng, 2, tokens, 32), halves(rng, 2, 2, 32)
    valid = rng.random(tokens) < 0.5
    valid[tokens // 2] = True
    k[:, ~valid] = 65504  # excluded rows have no influence
    host.store(k, v)
    check(host.attend(q, tokens, valid), q, k, v, valid)


def test_sessions_layers_and_heads_do_not_mix(host, check):
    rng = np.random.default_rng(8)
    places = [(1, 0, 0), (1, 0, 3), (1, 7, 0), (2, 0, 0), (0xFFFFFFFF, 0xFFFF, 255)]
    stored = {}
    for session, layer, head in places:
        stored[session, layer, head] = halves(rng, 1, 40, 64), halves(rng, 1, 40, 64)
        host.store(*stored[session, layer, head], session=session, layer=layer, head=head)
    q = halves(rng, 1, 1, 64)
    for (session, layer, head), (k, v) in stored.items():
        check(host.attend(q, 40, session=session, layer=layer, head=head), q, k, v)


def test_tickets_are_fetched_in_any_order(host, check):
    rng = np.random.default_rng(9)
    k, v = halves(rng, 1, 50, 64), halves(rng, 1, 50, 64)
    host.store(k, v)
    queries = [halves(rng, 1, 2, 64) for _ in range(5)]
    tickets = [host.submit(q, 50).result for q in queries]
    assert len(set(tickets)) == 5
    for i in (3, 0, 4, 1, 2):
        check(host.fetch(tickets[i], abi.AttentionResult.itemsize + 2 * 2 * 64), queries[i], k, v)


def test_results_outlive_their_session(host, check):
    rng = np.random.default_rng(10)
    k, v, q = halves(rng, 1, 50, 64), halves(rng, 1, 50, 64), halves(rng, 1, 2, 64)
    host.store(k, v)
    ticket = host.submit(q, 50).result
    assert host.trim().status == abi.NvmeStatus.SUCCESS
    check(host.fetch(ticket, abi.AttentionResult.itemsize + 2 * 2 * 64), q, k, v)


def test_threads_share_a_drive(host, check):
    def work(session):
        rng = np.random.default_rng(session)
        k, v, q = halves(rng, 1, 200, 64), halves(rng, 1, 200, 64), halves(rng, 1, 2, 64)
        for start in range(0, 200, 40):
            host.store(k[:, start : start + 40], v[:, start : start + 40], session=session, first_token=start)
            check(host.attend(q, start + 40, session=session), q, k[:, : start + 40], v[:, : start + 40])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))


def test_statistics_count_bytes_and_pages(host):
    rng = np.random.default_rng(11)
    heads, tokens, d, group = 2, 75, 64, 4  # 32 tokens per page: two pages and 11 tokens in DRAM per head
    k, v, q = halves(rng, heads, tokens, d), halves(rng, heads, tokens, d), halves(rng, heads, group, d)
    host.store(k, v)
    host.attend(q, tokens)
    host.attend(q, 40)  # needs both pages of K and of V, nothing from DRAM
    assert host.fetch(99, 0).status == abi.NvmeStatus.UNKNOWN_TICKET
    kv_bytes, q_bytes = heads * tokens * d * 2, heads * group * d * 2
    answer = heads * abi.AttentionResult.itemsize + q_bytes
    assert host.drive.stats() == {
        "commands": 7,
        "failed_commands": 1,
        "host_bytes_in": 7 * 64 + 2 * kv_bytes + 2 * q_bytes,
        "host_bytes_out": 7 * 16 + 2 * answer,
        "pages_written": heads * 2 * 2,
        "pages_read": 2 * heads * 2 * 2,
        "staged_bytes_read": heads * 2 * 11 * d * 2,
        "attention_jobs": 2 * heads,
    }


@pytest.mark.parametrize("engine", ["fast", "hls"])
def test_pages_without_a_valid_token_are_not_read(make_drive, check, engine):
    """A mask with a window and some sinks. Pages between them are not read, so they may even be lost."""
    rng = np.random.default_rng(7)
    tokens = 8192
    k, v, q = (rng.standard_normal(shape).astype(np.float16) for shape in ((1, tokens, 128),) * 2 + ((1, 2, 128),))
    valid = np.zeros(tokens, bool)
    valid[:5], valid[700], valid[8000:] = True, True, True
    host = make_drive(engine=engine)
    host.store(k, v)
    host.flush()
    before = host.drive.flash_stats()
    check(host.attend(q, tokens, valid), q, k, v, valid)
    after = host.drive.flash_stats()
    read = 2 * (1 + 1 + (8192 - 8000) // 16)
    assert after["groups_read"] - before["groups_read"] == read
    assert sum(after["channel_bytes"]) - sum(before["channel_bytes"]) <= read * 4096
    assert host.submit(q, tokens, np.zeros(tokens, bool)).status == abi.NvmeStatus.SUCCESS
    assert host.drive.flash_stats()["groups_read"] == after["groups_read"]
