# SPDX-License-Identifier: Apache-2.0
import pytest

from openhls.analysis.storage import storage_of
from openhls.errors import Unsupported
from openhls.ir import TRUE, Array, Block, Carried, Const, Dependence, Loop, Opcode, Operand, Partition, Value
from openhls.passes.balance import balance
from openhls.pipeline import loop_forms
from openhls.schedule.dependence import Body
from openhls.schedule.pipelined import pipelined
from openhls.schedule.schedule import Schedule, schedule_block, schedule_loop
from openhls.schedule.target import target_of

CLOCK = target_of(300.0)
N = Value("n", 32)


def accumulate(new_block, operations: int) -> tuple[Body, Operand]:
    """A loop whose carried value goes through so many multiplications."""
    block = new_block("b")
    carried = value = Value("acc", 16)
    word = block("read", w=16, to="in")
    for _ in range(operations):
        value = block("mul", value, word)
    counter = Value("i", 8)
    following = block("add", counter, Const(8, 1))
    again = block("ne", following, Const(8, 100))
    return Body(
        block.block().operations,
        {},
        (Carried(carried, Const(16, 1), value), Carried(counter, Const(8, 0), following)),
        looped=True,
    ), again


def test_the_interval_is_the_latency_of_the_recurrence(new_block) -> None:
    for count in (1, 2, 3):
        body, again = accumulate(new_block, count)
        schedule = schedule_loop(body, again, 1, True, CLOCK)
        assert schedule.interval == 2 * count + 1  # two cycles a product, one for the carried value
        assert "acc" in schedule.limit


def test_the_wish_is_the_least_interval(new_block) -> None:
    body, again = accumulate(new_block, 1)
    assert schedule_loop(body, again, 6, True, CLOCK).interval == 6


def test_without_overlap_the_interval_is_the_depth(new_block) -> None:
    body, again = accumulate(new_block, 2)
    schedule = schedule_loop(body, again, 1, False, CLOCK)
    assert schedule.interval == schedule.depth
    assert not schedule.overlapped


def histogram(new_block, *promises: Dependence, lanes: int = 1) -> tuple[Body, Operand]:
    """a[word] += 1."""
    block = new_block("b")
    for _ in range(lanes):
        index = block("read", w=6, to="in")
        count = block("load", index, w=32, to="a")
        block("store", index, block("add", count, Const(32, 1)), to="a")
    counter = Value("i", 8)
    following = block("add", counter, Const(8, 1))
    again = block("ne", following, Const(8, 100))
    storages = {"a": storage_of(Array("a", 32, 64))}
    return Body(
        block.block().operations, storages, (Carried(counter, Const(8, 0), following),), promises, looped=True
    ), again


def test_a_store_that_a_load_may_meet_limits_the_interval(new_block) -> None:
    schedule = schedule_loop(*histogram(new_block), 1, True, CLOCK)
    assert schedule.interval == 2
    assert "RAW on array a" in schedule.limit


@pytest.mark.parametrize(
    "promise",
    [
        Dependence("a", True, False),
        Dependence("a", True, False, "RAW"),
        Dependence("a", True, True, "RAW", 2),
    ],
)
def test_a_promise_lifts_the_limit(new_block, promise: Dependence) -> None:
    assert schedule_loop(*histogram(new_block, promise), 1, True, CLOCK).interval == 1


def test_a_promise_about_another_kind_does_not(new_block) -> None:
    assert schedule_loop(*histogram(new_block, Dependence("a", True, False, "WAR")), 1, True, CLOCK).interval == 2
    assert schedule_loop(*histogram(new_block, Dependence("b", True, False)), 1, True, CLOCK).interval == 2


def test_the_ports_of_a_stream_are_a_resource(new_block) -> None:
    promise = Dependence("a", True, False), Dependence("a", False, False)
    schedule = schedule_loop(*histogram(new_block, *promise, lanes=3), 1, True, CLOCK)
    assert schedule.interval is not None
    assert schedule.interval >= 3


def prefix_sums(new_block) -> Loop:
    """Three sums with a carried value, each needed by itself; the last one is handed on."""
    block = new_block("b")
    word = block("read", w=8, to="in")
    carried = value = Value("filled", 8)
    for bit in range(3):
        value = block("add", value, block("zext", block("extract", word, w=1, low=bit), w=8))
        block("write", value, to=f"out{bit}")
    following = block("zext", block("extract", value, w=4), w=8)
    return Loop("l", (Carried(carried, Const(8, 0), following),), (block.block(),), TRUE)


def test_a_doubled_sum_shortens_the_interval(new_block) -> None:
    """As in a packer: the write of a place per set bit, and the fill level for the next word."""
    loop = prefix_sums(new_block)
    body = Body.of_loop(balance(loop), {})
    assert schedule_loop(body, TRUE, 1, True, target_of(700.0)).interval == 3
    assert pipelined(loop, {}, target_of(700.0), loop_forms()).schedule.interval == 1


def test_sums_that_have_other_uses_are_doubled_only_on_request(new_block) -> None:
    loop = prefix_sums(new_block)
    assert balance(loop) == loop
    (block,) = balance(loop, shared=True).body
    assert isinstance(block, Block)
    definitions = {op.result: op for op in block.operations if op.result is not None}
    written = [op.operands[0] for op in block.operations if op.opcode is Opcode.WRITE]
    assert len(written) == 3
    for value in written:
        assert isinstance(value, Value)
        assert loop.carried[0].value in definitions[value].operands  # one addition in the recurrence


def order_of(body: Body, schedule: Schedule) -> list[tuple[int, str]]:
    return [(step, op.opcode.value) for op, step in zip(body.operations, schedule.steps, strict=True) if op.target]


def test_exclusive_writes_share_a_cycle(new_block) -> None:
    block = new_block("b")
    word = block("read", w=8, to="in")
    flag = block("extract", word, w=1)
    block("write", word, to="out", when=flag)
    block("write", Const(8, 7), to="out", when=block("xor", flag, Const(1, 1)))
    body = Body(block.block().operations, {})
    assert order_of(body, schedule_block(body, CLOCK)) == [(0, "read"), (0, "write"), (0, "write")]


def test_other_writes_take_turns(new_block) -> None:
    block = new_block("b")
    word = block("read", w=8, to="in")
    block("write", word, to="out", when=block("extract", word, w=1))
    block("write", word, to="out", when=block("extract", word, w=1, low=1))
    body = Body(block.block().operations, {})
    assert order_of(body, schedule_block(body, CLOCK)) == [(0, "read"), (0, "write"), (1, "write")]


def test_writes_under_either_condition_and_without_one_take_turns(new_block) -> None:
    """`a or b` can hold where `a` does not."""
    block = new_block("b")
    word = block("read", w=8, to="in")
    a, b = (block("extract", word, w=1, low=low) for low in (0, 1))
    block("write", word, to="out", when=block("or", a, b))
    block("write", Const(8, 7), to="out", when=block("xor", a, Const(1, 1)))
    body = Body(block.block().operations, {})
    assert order_of(body, schedule_block(body, CLOCK)) == [(0, "read"), (0, "write"), (1, "write")]


def test_a_write_leaves_before_a_later_read_waits(new_block) -> None:
    block = new_block("b")
    block("write", Const(8, 7), to="request")
    block("read", w=8, to="answer")
    body = Body(block.block().operations, {})
    assert order_of(body, schedule_block(body, CLOCK)) == [(0, "write"), (1, "read")]


def test_chains_end_within_the_clock_period(new_block) -> None:
    block = new_block("b")
    value = block("read", w=32, to="in")
    for _ in range(12):
        value = block("add", value, N)
    body = Body(block.block().operations, {})
    for clock in (100.0, 300.0, 400.0):
        target = target_of(clock)
        schedule = schedule_block(body, target)
        assert max(time.offset for time in schedule.ends) <= target.budget + 1e-9
        assert schedule.depth >= 12 * 0.5 * clock / 1000


def test_banks_that_need_a_division_are_refused() -> None:
    with pytest.raises(Unsupported, match="power of two as factor"):
        storage_of(Array("a", 8, 12, Partition.CYCLIC, 3))
    with pytest.raises(Unsupported, match="power of two as length of each block"):
        storage_of(Array("a", 8, 24, Partition.BLOCK, 2))
    assert storage_of(Array("a", 8, 24, Partition.BLOCK, 3)).bank_length == 8
