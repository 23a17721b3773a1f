# SPDX-License-Identifier: Apache-2.0
"""Pages that are read before their query comes, and rows that share a read. Nothing but the times may change."""

import numpy as np
import pytest
from kv_model import HEADS, LAYERS, D, Model, apply, random_step, send
from random_halves import halves

from kvdrive import abi
from kvdrive.nvme import commands
from kvdrive.nvme.commands import AttentionQuery
from kvdrive.nvme.rows_command import attn_submit_rows, rows_bytes, rows_result

OK = abi.NvmeStatus.SUCCESS
ROW_BYTES = 2 * D
GROUP = 4096 // ROW_BYTES  # tokens of a page


@pytest.fixture
def pair(make_drive):
    """Two equal drives: one reads around the page cache, the other never does."""
    return make_drive(preset="plain", run_groups=4), make_drive()


@pytest.fixture
def plain(pair):
    if not pair[0].drive.read_stats()["asynchronous"]:
        pytest.skip("the kernel has no io_uring: reads end before the next command in any case")
    return pair[0]


def fill(hosts, rng, tokens, layers=LAYERS, session=1, heads=HEADS):
    for layer in range(layers):
        k, v = (halves(rng, heads, tokens, D) for _ in range(2))
        for host in hosts:
            for first in range(0, tokens, 32768):  # the most of a command
                part = slice(first, first + 32768)
                host.store(k[:, part], v[:, part], layer=layer, session=session, first_token=first)
    last = halves(rng, 1, 16384, D)
    for host in hosts:
        host.store(last, last, session=90 + session)  # what comes last is still in memory
        assert host.flush().status == OK


def attend_all(hosts, q, tokens, valid=None, **fields):
    """The answer, which is the same on all."""
    found = [host.attend(q, tokens, valid, **fields) for host in hosts]
    assert found[0].status == OK
    assert all(np.array_equal(one.data, found[0].data) for one in found)
    return found[0]


def early(host):
    """Pieces that were read early and used, those that were not used, bytes of all reads."""
    stats = host.drive.read_stats()
    return stats["early"], stats["unused"], stats["bytes"]


def test_pages_of_the_next_layer_are_read_before_its_query_comes(plain, pair):
    rng = np.random.default_rng(1)
    layers, tokens, steps = 3, 40 * GROUP, 6
    fill(pair, rng, tokens, layers)
    before, used = early(plain)[2], []
    for step in range(steps):
        for layer in range(layers):
            row = halves(rng, HEADS, 1, D)
            for host in pair:  # as a model does: a token's K and V come before its query
                host.store(row, row, layer=layer, first_token=tokens + step)
            attend_all(pair, halves(rng, HEADS, 4, D), tokens + step + 1, layer=layer)
        used.append(early(plain)[0])
    pieces = 2 * HEADS  # of a layer: K and V of each head are shorter than a piece
    # A layer is expected when it has followed twice; the first one follows the last one a step later than the others.
    assert np.diff(used).tolist() == [0, (layers - 1) * pieces, *[layers * pieces] * 3]
    assert early(plain)[1] == 0
    # All bytes are read once for each query, and those of one more layer, which wait for a next token.
    assert early(plain)[2] - before == (steps * layers + 1) * 2 * HEADS * tokens * ROW_BYTES


def test_a_long_context_is_read_early_in_part(plain, pair):
    rng = np.random.default_rng(2)
    tokens = 10 * (1 << 20) // ROW_BYTES  # 10 pieces of K alone
    fill(pair, rng, tokens, 2, heads=1)
    for _ in range(4):
        for layer in range(2):
            attend_all(pair, halves(rng, 1, 1, D), tokens, layer=layer)
    # Of eight queries, those of the third step's second layer and all of the fourth step were expected.
    assert early(plain)[:2] == (3 * 8, 0)


def more_rows(host, rng, tokens):
    """Rows that fill pages of layer 0."""
    for layer in range(LAYERS):
        rows = halves(rng, HEADS, 8 * GROUP, D)
        host.store(rows, rows, layer=layer, first_token=tokens)
    return tokens + 8 * GROUP


def other_rows(host, rng, tokens):
    """Other rows in the places of those that were there."""
    assert host.trim(from_token=GROUP).status == OK
    for layer in range(LAYERS):
        rows = halves(rng, HEADS, tokens - GROUP, D)
        host.store(rows, rows, layer=layer, first_token=GROUP)
    assert host.flush().status == OK
    return tokens


def removed_rows(host, rng, tokens):
    assert host.remove(tokens=2 * GROUP, before=tokens).status == OK
    return tokens - 2 * GROUP


def an_erased_fork(host, rng, tokens):
    """A fork's pages are erased with those that it alone has, which moves what lies beside them."""
    assert host.fork(1, 2, tokens).status == OK
    rows = halves(rng, HEADS, 8 * GROUP, D)
    host.store(rows, rows, session=2, first_token=tokens)
    assert host.erase(session=2).status == OK
    return tokens


@pytest.mark.parametrize("change", [more_rows, other_rows, removed_rows, an_erased_fork])
def test_what_changed_is_read_again(plain, pair, change):
    rng = np.random.default_rng(3)
    tokens = 40 * GROUP
    fill(pair, rng, tokens)
    for _ in range(2):
        for _ in range(3):
            for layer in range(LAYERS):
                attend_all(pair, halves(rng, HEADS, 2, D), tokens, layer=layer)
        unused = early(plain)[1]
        (tokens,) = {change(host, np.random.default_rng(4), tokens) for host in pair}
    attend_all(pair, halves(rng, HEADS, 2, D), tokens, layer=0)
    assert early(plain)[1] > unused  # the change came while pages were read for the next query


@pytest.mark.parametrize("seed", range(6))
def test_any_history_between_steps_gives_the_same_bits(make_drive, seed):
    """Random commands, small blocks and garbage collection between the steps of a model over three sessions."""
    rng = np.random.default_rng(seed)
    model = Model()
    options = {"capacity_bytes": 4096 * 700, "snapshot_bytes": 1 << 17, "pages_per_block": 2, "run_groups": 1}
    hosts = [make_drive(preset="plain", **options), make_drive(**options)]
    for _ in range(60):
        name, arguments = random_step(rng, model)
        status = [send(host, model, name, arguments) for host in hosts]
        assert status[0] == status[1]
        if status[0] == OK:
            apply(model, name, arguments)
        for _ in range(3):
            for session in sorted(model.rows):
                for layer in range(LAYERS):
                    tokens = min(model.tokens(session, layer, kind) for kind in abi.KvKind)
                    if tokens:
                        attend_all(hosts, halves(rng, HEADS, 2, D), tokens, session=session, layer=layer)
    assert hosts[0].drive.check() == []


@pytest.mark.parametrize("kind", ["window", "any"])
def test_masks_that_move_from_token_to_token(plain, pair, kind):
    rng = np.random.default_rng(5)
    tokens = 64 * GROUP
    fill(pair, rng, tokens)
    for step in range(40):
        for layer in range(LAYERS):
            first = 8 + (step * 7 % 40 if kind == "any" else step)
            mask = np.arange(tokens) >= first * GROUP
            attend_all(pair, halves(rng, HEADS, 1, D), tokens, mask, layer=layer)
    # Where what was read early was of no use four times, no more is.
    assert early(plain)[:2] == (0, LAYERS * 4 * 2 * HEADS)


def rows_command(queries):
    """ATTN_SUBMIT_ROWS of (session, layer, q [heads, group, D], tokens)."""
    return attn_submit_rows(
        [
            AttentionQuery(
                {
                    "session": session, "layer": layer, "head": 0, "heads": q.shape[0], "group": q.shape[1],
                    "tokens": tokens, "mode": abi.Mode.EXACT, "has_valid": 0, "r": 0, "k_top": 0, "local": 0,
                    "inline_tokens": 0, "scale_log2e": 3 << 20,
                },
                q.reshape(-1).view(np.uint8),
            )
            for session, layer, q, tokens in queries
        ]
    )  # fmt: skip


def ask_rows(host, queries):
    command = rows_command(queries)
    reply = host.raw(command.entry, command.data)
    assert reply.status == OK
    sizes = [commands.result_bytes(*q.shape, abi.Mode.EXACT) for _, _, q, _ in queries]
    found = rows_result(host.fetch(reply.result, rows_bytes(sizes)).data, sizes)
    assert {row.status for row in found} == {0}
    return [bytes(row.data) for row in found]


def test_rows_over_the_same_k_and_v_share_one_read(plain, pair):
    rng = np.random.default_rng(6)
    tokens = 40 * GROUP
    fill(pair, rng, tokens)
    queries = [(1, 0, halves(rng, HEADS, 2, D), tokens - 3 + at) for at in range(4)]  # of a draft of three tokens
    for _ in range(3):
        before = early(plain)[2]
        assert ask_rows(plain, queries) == ask_rows(pair[1], queries)
        assert early(plain)[2] - before == 2 * HEADS * tokens * ROW_BYTES


def test_rows_of_several_sessions_are_read_while_the_row_before_is_computed(plain, pair):
    rng = np.random.default_rng(7)
    tokens = 40 * GROUP
    for session in (1, 2, 3):
        fill(pair, rng, tokens, 1, session)
    queries = [(session, 0, halves(rng, HEADS, 2, D), tokens) for session in (1, 2, 3)]
    for _ in range(2):
        assert ask_rows(plain, queries) == ask_rows(pair[1], queries)
    assert early(plain)[:2] == (2 * 2 * HEADS, 0)  # of the second command; in the first one nothing was known


def test_a_command_that_is_repeated_reads_the_disk_again(plain, pair):
    rng = np.random.default_rng(8)
    tokens = 40 * GROUP
    fill(pair, rng, tokens)
    q = halves(rng, HEADS, 2, D)
    for _ in range(5):
        before = early(plain)[2]
        attend_all(pair, q, tokens, layer=0)
        assert early(plain)[2] - before == 2 * HEADS * tokens * ROW_BYTES
    assert early(plain)[:2] == (0, 0)


def test_a_damaged_page_that_was_read_early_is_noticed(plain, pair):
    rng = np.random.default_rng(9)
    tokens = 40 * GROUP
    fill(pair, rng, tokens)
    for _ in range(3):
        for layer in range(LAYERS):
            attend_all(pair, halves(rng, HEADS, 2, D), tokens, layer=layer)
    # Layer 0 of the next step is in memory already. A fault of the reads after it strikes layer 1.
    plain.drive.inject("read_uncorrectable")
    assert plain.attend(halves(rng, HEADS, 2, D), tokens, layer=0).status == OK
    assert plain.attend(halves(rng, HEADS, 2, D), tokens, layer=1).status == abi.NvmeStatus.UNRECOVERED_READ
    attend_all(pair, halves(rng, HEADS, 2, D), tokens, layer=1)
