"""Jobs of the kernels group_choice in a memory image: check bits, what is written, the same bits as the direct call."""

import numpy as np
import pytest

import golden
from golden import abi, bitmap, group_job
from golden.abi import Status

JOB = 64  # address of the descriptor
GUARD = 0xA5


def image(seed, g, s, d, inline, *, unit=32, k_top=2, valid=None):
    """(memory, places, arguments of the direct call): arrays with a guard beat after each."""
    rng = np.random.default_rng(seed)
    q, k = (rng.standard_normal((n, d)).astype(np.float16) for n in (g, s))
    x = rng.integers(-(4 << 20), 4 << 20, (g, inline)).astype(np.int32)
    index = golden.build_index(k)
    arrays = {
        "q": q,
        "index": index.to_bytes(),
        "inline_scores": np.pad(x, ((0, 0), (0, -inline % 16)), constant_values=0x7FFFFFFF),
        "out": np.full(bitmap.beats(-(-s // unit)) * 64, GUARD, np.uint8),
        "result": np.full(abi.GroupChoiceResult.itemsize * -(-g // 8), GUARD, np.uint8),
    }
    if valid is not None:
        arrays["valid"] = np.pad(np.packbits(valid, bitorder="little"), (0, -(s // 8) % 64), constant_values=255)
    memory, places = np.full(JOB + 192, GUARD, np.uint8), {}
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        places[name] = (memory.size, data.size)
        memory = np.concatenate([memory, data, np.full(-data.size % 64 + 64, GUARD, np.uint8)])
    job = memory[JOB : JOB + 128].view(abi.GroupChoiceJob)
    job[:] = 0
    numbers = {"version": abi.ABI_VERSION, "group": g, "unit": unit, "head_dim": d, "exponent": index.exponent}
    numbers |= {"tokens": s, "inline_tokens": inline, "k_top": k_top, "scale_log2e": golden.scale_bits(None, d)}
    for name, value in (numbers | {name: start for name, (start, _) in places.items()}).items():
        job[name] = value
    return memory, places, (q, index, unit, k_top, golden.scale_bits(None, d), arrays.get("valid"), x)


def outside(memory, places):
    keep = np.ones(memory.size, np.bool_)
    for name in ("out", "result"):
        start, size = places[name]
        keep[start : start + size] = False
    return memory[keep].copy()


@pytest.mark.parametrize(("g", "d", "inline", "unit"), [(1, 32, 0, 16), (4, 128, 3, 64), (8, 64, 17, 128)])
@pytest.mark.parametrize("masked", [False, True])
def test_a_job_is_the_direct_call(g, d, inline, unit, masked):
    valid = np.random.default_rng(g).random(320) < 0.5 if masked else None
    memory, places, arguments = image([g, d], g, 320, d, inline, unit=unit, valid=valid)
    before = outside(memory, places)
    expected = golden.group_choice(*arguments)
    assert group_job.run(memory, JOB) == 0
    start, size = places["result"]
    record = memory[start : start + size].view(abi.GroupChoiceResult)[0]
    assert (record["status"], record["selected"]) == (0, 2)
    for name in ("max", "sum", "unread"):
        assert record[name].tolist() == getattr(expected, name).tolist() + [0] * (8 - g)
    start, size = places["out"]
    np.testing.assert_array_equal(memory[start : start + size], expected.bitmap)
    np.testing.assert_array_equal(outside(memory, places), before)


def test_shapes_of_commands_have_several_records():
    memory, places, arguments = image(7, 16, 64, 40, 0)
    expected = golden.group_choice(*arguments)
    assert group_job.run(memory, JOB, golden.gemv.COMMAND_SHAPES) == 0
    start, size = places["result"]
    records = memory[start : start + size].view(abi.GroupChoiceResult)
    assert records["sum"].reshape(-1).tolist() == expected.sum.tolist()


def test_results_without_a_value():
    memory, places, _ = image(8, 2, 64, 32, 0, valid=np.zeros(64, np.bool_))
    assert group_job.run(memory, JOB) == Status.EMPTY
    start, size = places["result"]
    record = memory[start : start + size].view(abi.GroupChoiceResult)[0]
    assert (record["status"], record["selected"], record["sum"].any()) == (Status.EMPTY, 0, False)
    memory, places, _ = image(8, 2, 64, 32, 0)
    start, _ = places["q"]
    memory[start + 65] = 0x7C
    assert group_job.run(memory, JOB) == Status.NON_FINITE


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"version": 9}, Status.BAD_VERSION),
        ({"group": 3}, Status.BAD_GROUP),
        ({"head_dim": 48, "inline_tokens": 0}, Status.BAD_HEAD_DIM),
        ({"head_dim": 0}, Status.BAD_HEAD_DIM),
        ({"tokens": 0}, Status.BAD_LENGTH | Status.BAD_K),
        ({"tokens": 40, "unit": 16}, Status.BAD_LENGTH),
        ({"inline_tokens": 131072 - 63}, Status.BAD_LENGTH | Status.OUT_OF_RANGE),
        ({"unit": 0}, Status.BAD_UNIT),
        ({"unit": 48, "k_top": 0}, Status.BAD_UNIT),
        ({"k_top": 3}, Status.BAD_K),
        ({"k_top": 0}, Status.BAD_K),
        ({"exponent": 1}, Status.BAD_EXPONENT),
        ({"exponent": 35}, Status.BAD_EXPONENT),
        ({"scale_log2e": 0xFF800000}, Status.BAD_SCALE),
        ({"q": 8}, Status.UNALIGNED),
        ({"index": 1 << 60}, Status.OUT_OF_RANGE),
        ({"valid": 1}, Status.UNALIGNED),
        ({"out": 1 << 20, "unit": 48}, Status.BAD_UNIT),
        ({"inline_tokens": 0, "inline_scores": 3}, Status(0)),
    ],
)
def test_checks(fields, status):
    memory, _, _ = image(9, 2, 64, 32, 1)
    for name, value in fields.items():
        memory[JOB : JOB + 128].view(abi.GroupChoiceJob)[name] = value
    before = memory.copy()
    assert group_job.run(memory, JOB) == status
    if status:
        np.testing.assert_array_equal(memory, before)
    assert group_job.run(memory, 32) == Status.UNALIGNED
    assert group_job.run(memory, 1 << 40) == Status.OUT_OF_RANGE
