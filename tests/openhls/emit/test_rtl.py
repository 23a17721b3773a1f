# SPDX-License-Identifier: Apache-2.0
"""Designs written by hand in openhls.ir: what is hard to get from C++ at will."""

import random

import pytest

from openhls.ir import (
    TRUE,
    Array,
    Call,
    Carried,
    Const,
    Dataflow,
    Direction,
    Fifo,
    Loop,
    Operand,
    Partition,
    Pipeline,
    Process,
    Program,
    Result,
    Stream,
    Value,
)

SEED = 3
MASK = (1 << 32) - 1
N = Value("n", 32)
ZERO = Const(32, 0)


def streams(**directions: str) -> tuple[Stream, ...]:
    return tuple(Stream(name, 32, Direction(direction)) for name, direction in directions.items())


def count_to(block, counter: Value, bound: Operand) -> tuple[Carried, Value]:
    following = block("add", counter, Const(32, 1))
    return Carried(counter, ZERO, following), block("slt", following, bound)


@pytest.mark.parametrize(
    ("partition", "factor"),
    [(Partition.NONE, 1), (Partition.COMPLETE, 1), (Partition.CYCLIC, 4), (Partition.BLOCK, 4)],
)
def test_histograms_in_every_kind_of_memory(partition: Partition, factor: int, new_block, new_case, run_rtl) -> None:
    clear, before, count, drain = (new_block(name) for name in ("clear", "before", "count", "drain"))
    k = Value("k", 32)
    clear("store", k, ZERO, to="h")
    clear_counter, clear_again = count_to(clear, k, Const(32, 16))
    enter = before("slt", ZERO, N)
    word = count("read", w=32, to="in")
    index = count("extract", word, w=4)
    count("store", index, count("add", count("load", index, w=32, to="h"), Const(32, 1)), to="h")
    counter, again = count_to(count, Value("i", 32), N)
    j = Value("j", 32)
    drain("write", drain("load", j, w=32, to="h"), to="out")
    drain_counter, drain_again = count_to(drain, j, Const(32, 16))
    body = (
        Loop("clearing", (clear_counter,), (clear.block(),), clear_again),
        before.block(),
        Loop("counting", (counter,), (count.block(),), again, (), enter, Pipeline(1)),
        Loop("draining", (drain_counter,), (drain.block(),), drain_again),
    )
    array = Array("h", 32, 16, partition, factor)
    process = Process("hist", (N,), streams(**{"in": "in", "out": "out"}), (array,), body)
    rng, cases = random.Random(SEED), []
    for _ in range(30):
        words = [rng.choice((5, rng.getrandbits(32))) for _ in range(rng.choice((0, 1, 3, 60)))]
        counts = [sum(word % 16 == bin_ for word in words) for bin_ in range(16)]
        cases.append(new_case([len(words)], {"in": words}, {"out": counts}))
    ran = run_rtl(Program("hist", {"hist": process}, ("in", "out", "n")), cases)
    assert (ran.stalled.problem, ran.free.problem) == ("", "")
    assert ran.interval("counting") == 1


@pytest.mark.parametrize("pipeline", [Pipeline(1), Pipeline(3), Pipeline(off=True)], ids=["1", "3", "off"])
def test_a_late_read_holds_only_what_is_behind_it(pipeline: Pipeline, new_block, new_case, run_rtl) -> None:
    """A product decides if stream b is read, some steps after the read of stream a."""
    block = new_block("b")
    x = block("read", w=32, to="a")
    square = block("mul", x, x)
    flag = block("extract", square, w=1, low=7)
    y = block("read", w=32, to="b", when=flag)
    block("write", block("add", block("select", flag, y, x), square), to="out")
    counter, again = count_to(block, Value("i", 32), N)
    loop = Loop("main", (counter,), (block.block(),), again, (), TRUE, pipeline)
    process = Process("late", (N,), streams(a="in", b="in", out="out"), (), (loop,))
    rng, cases = random.Random(SEED), []
    for _ in range(30):
        a = [rng.getrandbits(32) for _ in range(rng.choice((1, 3, 50)))]
        taken = {i: rng.getrandbits(32) for i, x in enumerate(a) if x * x >> 7 & 1}
        out = [taken.get(i, x) + x * x & MASK for i, x in enumerate(a)]
        cases.append(new_case([len(a)], {"a": a, "b": list(taken.values())}, {"out": out}))
    ran = run_rtl(Program("late", {"late": process}, ("a", "b", "out", "n")), cases)
    assert (ran.stalled.problem, ran.free.problem) == ("", "")
    if pipeline.interval != 1:
        assert ran.interval("main") == next(r.depth for r in ran.design.regions if r.label == "main")
    else:
        assert ran.interval("main") == 1
        assert all(cycles <= len(case.inputs["a"]) + 12 for cycles, case in zip(ran.free.cycles, cases, strict=True))


def splitter(new_block) -> Process:
    """Products by k on c1, odd words on c2 as they are."""
    before, block = new_block("split_before"), new_block("split")
    word = block("read", w=32, to="source")
    block("write", block("mul", word, Value("k", 32)), to="products")
    block("write", word, to="odd", when=block("extract", word, w=1))
    counter, again = count_to(block, Value("i", 32), N)
    enter = before("slt", ZERO, N)
    loop = Loop("split_words", (counter,), (block.block(),), again, (), enter)
    ends = streams(source="in", products="out", odd="out")
    return Process("split", (N, Value("k", 32)), ends, (), (before.block(), loop))


def joiner(new_block) -> Process:
    """Adds the odd words, or 7, to the products; gives the sum of what it added."""
    before, block, after = new_block("join_before"), new_block("join"), new_block("join_after")
    product = block("read", w=32, to="products")
    odd = block("extract", product, w=1)
    added = block("select", odd, block("read", w=32, to="odd", when=odd), Const(32, 7))
    block("write", block("add", added, product), to="sums")
    total = Value("total", 32)
    following = block("add", total, added)
    counter, again = count_to(block, Value("i", 32), N)
    enter = before("slt", ZERO, N)
    last = Value("last_total", 32)
    carried = (counter, Carried(total, ZERO, following))
    loop = Loop("join_words", carried, (block.block(),), again, (Result(last, following),), enter)
    given = after("select", enter, last, ZERO)
    ends = streams(products="in", odd="in", sums="out")
    return Process("join", (N,), ends, (), (before.block(), loop, after.block()), (("total", given),))


def test_a_dataflow_region_in_a_loop(new_block, new_case, run_rtl) -> None:
    """Three rounds: a header that is handed on, two stages with shallow FIFOs, and their total."""
    head, tail = new_block("head"), new_block("tail")
    header = head("read", w=32, to="in")
    factor = head("or", header, Const(32, 1))
    head("write", header, to="out")
    total = Value("round_total", 32)
    calls = (
        Call("split", (("n", N), ("k", factor)), (("source", "in"), ("products", "c1"), ("odd", "c2"))),
        Call("join", (("n", N),), (("products", "c1"), ("odd", "c2"), ("sums", "out")), (), (("total", total),)),
    )
    region = Dataflow("flow", (Fifo("c1", 32, 3), Fifo("c2", 32, 2)), calls)
    tail("write", total, to="out")
    counter, again = count_to(tail, Value("round", 32), Const(32, 3))
    rounds = Value("rounds", 32)
    loop = Loop(
        "each_round", (counter,), (head.block(), region, tail.block()), again, (Result(rounds, counter.following),)
    )
    top = Process("flow", (N,), streams(**{"in": "in", "out": "out"}), (), (loop,), (("result", rounds),))
    rng, cases = random.Random(SEED), []
    for _ in range(30):
        size, given, expected = rng.choice((0, 1, 3, 40)), [], []
        for _ in range(3):
            header_word, words = rng.getrandbits(32), [rng.getrandbits(32) for _ in range(size)]
            added = [word if word & 1 else 7 for word in words]
            sums = [a + word * (header_word | 1) & MASK for a, word in zip(added, words, strict=True)]
            given += [header_word, *words]
            expected += [header_word, *sums, sum(added) & MASK]
        cases.append(new_case([size], {"in": given}, {"out": expected}, [3]))
    processes = {"split": splitter(new_block), "join": joiner(new_block), "flow": top}
    ran = run_rtl(Program("flow", processes, ("in", "out", "n")), cases)
    assert (ran.stalled.problem, ran.free.problem) == ("", "")


def test_a_run_that_cannot_end_names_its_streams(new_block, new_case, run_rtl) -> None:
    block = new_block("b")
    block("write", block("read", w=32, to="a"), to="out")
    block("read", w=32, to="b")
    process = Process("short", (), streams(a="in", b="in", out="out"), (), (block.block(),))
    cases = [new_case([], {"a": [1], "b": [2]}, {"out": [1]}), new_case([], {"a": [1], "b": []}, {"out": [1]})]
    ran = run_rtl(Program("short", {"short": process}, ("a", "b", "out")), cases)
    assert "stream b: a word more than the reference was read" in ran.free.problem
