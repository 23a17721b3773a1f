"""Jobs over codes in a memory image: their numbers, the order of parts, rows that are not valid, checks."""

import numpy as np
import pytest

import golden
from csim.attention_codes import Coded
from csim.attention_images import Problem, get_job, put_job
from golden import code_job, formats
from golden.abi import AttentionJob, Mode, Status


def problem(rng, g, s, d):
    """Random rows; the inline tokens has three tokens."""
    q, k, v, inline_v = (rng.standard_normal((n, d)).astype(np.float16) for n in (g, s, s, 3))
    scores = rng.integers(-(4 << 20), 4 << 20, (g, 3)).astype(np.int32)
    return Problem(q, k, v, rng.random(s) < 0.8, scores, inline_v)


@pytest.mark.parametrize(
    ("bits", "g", "d", "mode"),
    [
        (8, 1, 64, Mode.EXACT),
        (8, 4, 192, Mode.PARTIAL),
        (8, 1, 256, Mode.EXACT),
        (4, 1, 64, Mode.EXACT),
        (4, 1, 128, Mode.EXACT),
        (4, 4, 256, Mode.PARTIAL),
    ],
)
def test_a_job_over_codes_is_the_direct_call_over_their_numbers(bits, g, d, mode):
    rng = np.random.default_rng(d)
    coded = Coded.of(problem(rng, g, 37, d), bits)
    memory, address = coded.build(mode, rng)
    before, job = memory.copy(), get_job(memory, address)
    assert code_job.run(memory, address, bits) == 0
    p = coded.problem
    k, v = (formats.decode_rows(rows, bits, d) for rows in (coded.k, coded.v))
    want = golden.attention(
        p.q, k, v, scale_log2e=p.scale_log2e, valid=p.bitmap, inline_scores=p.inline_scores, inline_v=p.inline_v,
        partial=mode == Mode.PARTIAL,
    )  # fmt: skip
    out = slice(int(job["out"]), int(job["out"]) + want.out.nbytes)
    np.testing.assert_array_equal(memory[out], np.ascontiguousarray(want.out).view(np.uint8).reshape(-1))
    changed = np.flatnonzero(memory != before)
    result = slice(int(job["result"]), int(job["result"]) + 192)
    assert all(out.start <= i < out.stop or result.start <= i < result.stop for i in changed)


def test_a_beat_of_bytes_holds_the_parts_that_lie_half_a_row_apart():
    stored = np.concatenate([np.repeat(np.arange(8), 32), np.arange(100, 108)]).astype(np.uint8)[None]
    codes, steps = code_job.to_job_order(stored, 256, 8)
    assert codes[0, ::32].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert steps[0].tolist() == [100, 104, 101, 105, 102, 106, 103, 107]
    np.testing.assert_array_equal(code_job.from_job_order(codes, steps, 8), stored)


def test_a_beat_of_half_bytes_holds_the_parts_that_lie_a_quarter_of_a_row_apart():
    stored = np.concatenate([np.repeat(np.arange(8), 16), np.arange(100, 116)]).astype(np.uint8)[None]
    codes, steps = code_job.to_job_order(stored, 256, 4)
    assert codes[0, ::16].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert steps[0, ::2].tolist() == [100, 104, 108, 112, 102, 106, 110, 114]
    assert (steps[0, 1::2] - steps[0, ::2] == 1).all()
    np.testing.assert_array_equal(code_job.from_job_order(codes, steps, 4), stored)


def test_rows_of_half_a_beat_lie_as_they_are_stored():
    stored = np.arange(72, dtype=np.uint8).reshape(2, 36)
    codes, steps = code_job.to_job_order(stored, 64, 4)
    np.testing.assert_array_equal(np.concatenate([codes, steps], axis=1), stored)
    np.testing.assert_array_equal(code_job.from_job_order(codes, steps, 4), stored)


@pytest.mark.parametrize(
    ("bits", "d", "place", "value"),
    [(8, 64, 5, 0x80), (8, 64, 64, 34), (8, 64, 65, 255), (4, 128, 64, 255), (4, 128, 65, 127)],
)
@pytest.mark.parametrize("array", ["k", "v"])
def test_a_row_that_is_not_valid_counts_as_an_infinity(array, bits, d, place, value):
    """4 bits: a step of 15 * 2^10 and a zero of 127, each too large for the codes of its part."""
    rng = np.random.default_rng(3)
    coded = Coded.of(problem(rng, 1, 20, d), bits)
    coded.problem.valid[7] = True
    getattr(coded, array)[7, place] = value
    assert code_job.run(*coded.build(Mode.EXACT, rng), bits) == Status.NON_FINITE
    coded.problem.valid[7] = False
    assert code_job.run(*coded.build(Mode.EXACT, rng), bits) == 0


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"mode": 2}, Status.BAD_MODE),
        ({"group": 3}, Status.BAD_GROUP),
        ({"head_dim": 32}, Status.BAD_HEAD_DIM),
        ({"r": 4}, Status.BAD_R),
        ({"rows": 8}, Status.UNALIGNED),
        ({"v_sum": 1 << 60}, Status.OUT_OF_RANGE),
        ({"k": 1 << 60}, Status.OUT_OF_RANGE),
    ],
)
def test_checks(fields, status):
    rng = np.random.default_rng(4)
    memory, address = Coded.of(problem(rng, 1, 20, 64), 8).build(Mode.EXACT, rng)
    job = get_job(memory, address)
    for name, value in fields.items():
        job[name] = value
    put_job(memory, address, job)
    before = memory.copy()
    assert code_job.run(memory, address, 8) == status
    np.testing.assert_array_equal(memory, before)
    assert code_job.run(memory, memory.size - AttentionJob.itemsize + 64, 8) == Status.OUT_OF_RANGE


@pytest.mark.parametrize("d", [32, 96, 192])
def test_rows_that_share_a_beat_otherwise_are_refused(d):
    rng = np.random.default_rng(5)
    memory, address = Coded.of(problem(rng, 1, 20, 256), 4).build(Mode.EXACT, rng)
    job = get_job(memory, address)
    job["head_dim"] = d
    put_job(memory, address, job)
    assert code_job.run(memory, address, 4) == Status.BAD_HEAD_DIM
