# SPDX-License-Identifier: Apache-2.0
"""The queries of several rows in one command: the bits of one command for each, and each row its own status."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_halves import halves

from kvdrive import abi
from kvdrive.errors import TargetError
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.rows_at_once import in_rows, singly
from kvdrive.kvcache.session import Query, Session, attend
from kvdrive.nvme import commands, wire
from kvdrive.nvme.completions import Completion
from kvdrive.nvme.errors import CommandError
from kvdrive.nvme.rows import joined
from kvdrive.nvme.rows_command import attn_submit_rows, rows_bytes, rows_result
from kvdrive.nvme.wire import RowFormat
from kvdrive.policies.parameters import Parameters
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.wrapped import WrappedTarget

S = abi.NvmeStatus
SPARSE, GROUPS = abi.AppendOption.APPEND_SPARSE, abi.AppendOption.APPEND_GROUPS
TOKENS = 300


@dataclasses.dataclass(frozen=True)
class Kept:
    """A session on the drive: [heads, tokens, d] in a format, with the options of its appends."""

    session: int
    heads: int
    tokens: int
    d: int
    stored_as: RowFormat
    options: int


def keep(target, heads, tokens, d, stored_as=RowFormat.BINARY16, options=0):
    rng = np.random.default_rng(tokens + d)
    session = target.new_session()
    for sequence, kind in enumerate(abi.KvKind):
        rows = halves(rng, heads, tokens, d)
        target.execute(commands.kv_append(session, 0, 0, kind, 0, sequence, rows, joined(options, stored_as)))
    return Kept(session, heads, tokens, d, stored_as, options)


@pytest.fixture
def sessions(target):
    return [
        keep(target, 2, TOKENS, 64),
        keep(target, 1, 33, 128),
        *(keep(target, 3, 70, 64, stored_as) for stored_as in RowFormat if stored_as != RowFormat.BINARY16),
        keep(target, 2, TOKENS, 64, RowFormat.INT8),
        *(keep(target, 2, TOKENS, 64, stored_as, SPARSE) for stored_as in RowFormat),
        keep(target, 2, TOKENS, 64, options=GROUPS),
    ]


@st.composite
def rows(draw, sessions):
    """An ATTN_SUBMIT to one of the sessions and the bytes of its result. Some ask for what the drive does not have."""
    kept = draw(st.sampled_from(sessions))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    modes = [(abi.Mode.EXACT, {}), (abi.Mode.PARTIAL, {})]
    if kept.options == SPARSE:
        modes.append((abi.Mode.SPARF_ATTEND, {"r": 6, "k_top": 20, "local": 3}))
    if kept.options == GROUPS:
        modes.append((abi.Mode.GROUPS, {"r": 32, "k_top": 2}))
    mode, fields = draw(st.sampled_from(modes))
    group = draw(st.sampled_from([1, 4, 8]))
    first = draw(st.integers(0, kept.heads - 1))
    heads = draw(st.integers(1, kept.heads - first))
    tokens = draw(st.integers(1, kept.tokens + draw(st.sampled_from([0, 0, 0, 1]))))
    q = halves(rng, heads, group, kept.d)
    if draw(st.sampled_from([False] * 7 + [True])):
        q[0, 0, 0] = np.inf
    inline = draw(st.sampled_from([0, 0, 1, 17]))
    valid = rng.random(tokens) < draw(st.sampled_from([0.0, 0.6])) if draw(st.booleans()) else None
    session = draw(st.sampled_from([kept.session] * 7 + [999]))
    command = commands.attention_query(
        session, 0, first, q, tokens, scale_bits(None, kept.d), valid, mode=mode, **fields,
        inline_scores=rng.integers(-8 << 20, 8 << 20, (heads, group, inline)).astype(np.int32) if inline else None,
        inline_v=halves(rng, heads, inline, kept.d) if inline else None,
    )  # fmt: skip
    return command, commands.result_bytes(heads, group, kept.d, mode)


def alone(target, command, size):
    """Status and result of a query that is a command of its own."""
    submitted = target.submit(command.command())
    if submitted.status:
        return submitted.status, 0, b""
    done = target.submit(commands.fetch_bytes(submitted.result, size))
    return done.status, done.result, done.data.tobytes()


def together(target, queries, sizes):
    """Statuses and results of queries that are the rows of one command."""
    ticket = target.execute(attn_submit_rows(queries)).result
    data = target.execute(commands.fetch_bytes(ticket, rows_bytes(sizes))).data
    return [(row.status, row.engine_status, row.data.tobytes()) for row in rows_result(data, sizes)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_have_the_bits_and_statuses_of_single_commands(target, sessions, data):
    chosen = data.draw(st.lists(rows(sessions), min_size=1, max_size=9))
    queries, sizes = zip(*chosen, strict=True)
    expected = [alone(target, *one) for one in chosen]
    jobs = target.stats().attention_jobs
    found = together(target, queries, sizes)
    assert found == expected
    assert [status for status, _, _ in together(target, queries[::-1], sizes[::-1])] == [
        status for status, _, _ in expected[::-1]
    ]
    assert target.stats().attention_jobs >= jobs


def test_rows_take_the_device_time_and_the_reads_of_single_commands_one_after_the_other(tmp_path):
    """Only the moves of 64-byte entries, completions and descriptors over the host's link differ."""
    with Emulator(tmp_path / "a.kv", "fast") as one, Emulator(tmp_path / "b.kv", "fast") as other:
        times, reads, jobs = [], [], []
        for drive, ask in ((one, singly), (other, in_rows)):
            kept = [keep(drive, 2, 2048, 64) for _ in range(4)]
            drive.execute(commands.flush())
            queries = [
                commands.attention_query(k.session, 0, 0, np.ones((2, 1, 64), np.float16), 2048, 0x3E000000)
                for k in kept
            ]
            before, stats = drive.device_ns(), drive.stats()
            assert ask(drive, queries, [commands.result_bytes(2, 1, 64)] * 4) is not None
            times.append(drive.device_ns() - before)
            reads.append(drive.stats().kv_bytes_read - stats.kv_bytes_read)
            jobs.append(drive.stats().attention_jobs - stats.attention_jobs)
        assert reads[0] == reads[1] == 4 * 2 * 2 * 2048 * 128
        assert jobs == [8, 8]
        assert abs(times[1] / times[0] - 1) < 0.02


def queries_of(sessions, count):
    kept = sessions[0]
    rng = np.random.default_rng(9)
    return [
        commands.attention_query(kept.session, 0, 0, halves(rng, 2, 2, 64), 40 + row, 0x3E000000)
        for row in range(count)
    ]


SIZE = commands.result_bytes(2, 2, 64)


def test_all_rows_are_one_command_and_one_fetch(target, sessions):
    queries = queries_of(sessions, 8)
    expected = singly(target, queries, [SIZE] * 8)
    before = target.stats().commands
    found = in_rows(target, queries, [SIZE] * 8)
    assert target.stats().commands - before == 2
    assert [one.tobytes() for one in found] == [one.tobytes() for one in expected]


def test_one_row_is_a_single_command(target, sessions):
    assert in_rows(target, queries_of(sessions, 1), [SIZE]) is None


def test_rows_are_split_at_the_targets_limits(target, sessions):
    queries = queries_of(sessions, 8)
    expected = singly(target, queries, [SIZE] * 8)
    target.rows_at_once = 3
    before = target.stats().commands
    found = in_rows(target, queries, [SIZE] * 8)
    assert target.stats().commands - before == 6
    target.rows_at_once = 64
    target.max_transfer_bytes = 2 * SIZE + 40
    before = target.stats().commands
    again = in_rows(target, queries, [SIZE] * 8)
    assert target.stats().commands - before == 8
    for one in (found, again):
        assert [row.tobytes() for row in one] == [row.tobytes() for row in expected]


class Older(WrappedTarget):
    """A drive that does not know the command."""

    asked = 0

    def submit_many(self, commands):
        if commands[0].opcode != abi.Opcode.ATTN_SUBMIT_ROWS:
            return super().submit_many(commands)
        self.asked += 1
        return [Completion(0, S.INVALID_OPCODE, 0, False, np.empty(0, np.uint8)) for _ in commands]


def test_a_drive_that_does_not_know_rows_is_asked_singly_and_not_tried_again(target, sessions):
    older = Older(target)
    session = Session.existing(older, sessions[0].session, 0)
    queries = [Query(session, 0, np.full((2, 2, 64), n, np.float16), 40, 0x3E000000) for n in (1, 2, 3)]
    expected = attend(target, queries)
    for _ in range(2):
        found = attend(older, queries)
        assert [one.out.tobytes() for one in found] == [one.out.tobytes() for one in expected]
    assert older.asked == 1


def test_a_row_that_fails_raises_its_status_once_all_results_are_fetched(target, sessions):
    good = Session.existing(target, sessions[0].session, 0)
    queries = [Query(good, 0, np.ones((2, 2, 64), np.float16), tokens, 0x3E000000) for tokens in (40, TOKENS + 1, 50)]
    for _ in range(100):  # more than the drive keeps results
        with pytest.raises(CommandError, match="ATTN_SUBMIT_ROWS failed: TOKENS_MISSING"):
            attend(target, queries)
    valid = np.zeros(40, np.bool_)
    with pytest.raises(CommandError, match="excludes every token"):
        attend(target, [dataclasses.replace(queries[0], how=Parameters(valid=valid)), queries[0]])


class Lying(WrappedTarget):
    """A drive whose rows have sizes that nobody asked for."""

    size = 0

    def submit_many(self, commands):
        done = super().submit_many(commands)
        if commands[0].opcode != abi.Opcode.ATTN_FETCH:
            return done
        data = done[0].data.copy()
        data[: wire.AttnRowResult.itemsize].view(wire.AttnRowResult)["data_bytes"] = self.size
        return [dataclasses.replace(done[0], data=data)]


@pytest.mark.parametrize("size", [0, SIZE - 1, SIZE + 1, 0xFFFFFFFF])
def test_sizes_that_the_host_did_not_ask_for_are_refused(target, sessions, size):
    lying = Lying(target)
    lying.size = size
    with pytest.raises(TargetError, match="answered several rows wrongly"):
        in_rows(lying, queries_of(sessions, 2), [SIZE] * 2)
