# SPDX-License-Identifier: Apache-2.0
"""A program that moves elements from one memory to another as lists of requests say, and what it must do."""

import random
from collections.abc import Sequence

from openhls.ir import (
    REQUEST_WIDTH,
    Call,
    Carried,
    Const,
    Dataflow,
    Direction,
    Fifo,
    Loop,
    MemoryPort,
    Pipeline,
    Process,
    Program,
    Result,
    Stream,
    Value,
)

Request = tuple[int, int, int]  # first element, stride, count
LONG = 4000  # elements
ONE, ZERO = Const(32, 1), Const(32, 0)


def streams(**kinds: tuple[int, str]) -> tuple[Stream, ...]:
    return tuple(Stream(name, width, Direction(direction)) for name, (width, direction) in kinds.items())


def repeated(
    name: str, block, times: Value, carried: tuple[Carried, ...] = (), results: tuple[Result, ...] = ()
) -> Loop:
    """A loop of `times` iterations, 1 at least, of what `block` has so far, one each cycle."""
    counter = Value(f"{name}_i", 32)
    following = block("add", counter, ONE)
    again = block("ult", following, times)
    carried = (Carried(counter, ZERO, following), *carried)
    return Loop(f"{name}_loop", carried, (block.block(),), again, results, pipeline=Pipeline(1))


def asker(new_block, name: str) -> Process:
    """Hands requests on, with the address of the memory added."""
    times, base, block = Value("n", 32), Value("base", 64), new_block(name)
    word = block("read", w=REQUEST_WIDTH, to="list")
    address = block("add", block("extract", word, w=64), base)
    block("write", block("concat", block("extract", word, w=64, low=64), address, w=REQUEST_WIDTH), to="requests")
    ends = streams(list=(REQUEST_WIDTH, "in"), requests=(REQUEST_WIDTH, "out"))
    return Process(name, (times, base), ends, (), (repeated(name, block, times),))


def mover(new_block, name: str, width: int) -> Process:
    times, block = Value("n", 32), new_block(name)
    block("write", block("read", w=width, to="from"), to="to")
    ends = streams(**{"from": (width, "in"), "to": (width, "out")})
    return Process(name, (times,), ends, (), (repeated(name, block, times),))


def waiter(new_block, name: str) -> Process:
    """Takes the answers; gives 1 if one of them says that memory has reported an error."""
    times, block = Value("n", 32), new_block(name)
    failed, now = Value("failed_before", 1), Value("failed", 1)
    following = block("or", failed, block("read", w=1, to="answers"))
    carried = (Carried(failed, Const(1, 0), following),)
    loop = repeated(name, block, times, carried, (Result(now, following),))
    return Process(name, (times,), streams(answers=(1, "in")), (), (loop,), (("failed", now),))


def names(number: int) -> tuple[str, ...]:
    """The arguments of a pair of memories."""
    return tuple(f"{name}{number}" for name in ("source", "target", "reads", "writes", "asked", "given", "elements"))


def program(
    new_block, widths: Sequence[int], bundles: Sequence[str], registers: Sequence[str] = (), **limits: int
) -> Program:
    """For each width a pair of memories: what `reads` asks for is written where `writes` says.

    All pairs run at the same time. `bundles` are those of the sources, then those of the targets. Returns whether a
    write of the last pair has failed.
    """
    ports: list[MemoryPort] = []
    scalars: list[Value] = []
    ends: list[Stream] = []
    fifos: list[Fifo] = []
    calls: list[Call] = []
    processes: dict[str, Process] = {}
    for i, width in enumerate(widths):
        source, target, reads, writes, asked, given, elements = names(i)
        ports.append(MemoryPort(source, width, bundles[i], True, False, **limits))
        ports.append(MemoryPort(target, width, bundles[len(widths) + i], False, True, **limits))
        base, there = Value(source, 64), Value(target, 64)
        counts = [Value(name, 32) for name in (asked, given, elements)]
        scalars += [base, there, *counts]
        ends += [Stream(name, REQUEST_WIDTH, Direction.READ) for name in (reads, writes)]
        ends += streams(
            **{
                f"{source}_ar": (REQUEST_WIDTH, "out"),
                f"{source}_r": (width, "in"),
                f"{target}_aw": (REQUEST_WIDTH, "out"),
                f"{target}_w": (width, "out"),
                f"{target}_b": (1, "in"),
            }
        )
        fifos.append(Fifo(f"between{i}", width, 2))
        n, m, k = (("n", count) for count in counts)
        failed = Value(f"failed{i}", 1)
        calls += [
            Call(f"ask{i}", (n, ("base", base)), (("list", reads), ("requests", f"{source}_ar"))),
            Call(f"tell{i}", (m, ("base", there)), (("list", writes), ("requests", f"{target}_aw"))),
            Call(f"take{i}", (k,), (("from", f"{source}_r"), ("to", f"between{i}"))),
            Call(f"give{i}", (k,), (("from", f"between{i}"), ("to", f"{target}_w"))),
            Call(f"wait{i}", (m,), (("answers", f"{target}_b"),), results=(("failed", failed),)),
        ]
        stages = (
            *(asker(new_block, f"ask{i}"), asker(new_block, f"tell{i}"), mover(new_block, f"take{i}", width)),
            *(mover(new_block, f"give{i}", width), waiter(new_block, f"wait{i}")),
        )
        processes |= {stage.name: stage for stage in stages}
    region = Dataflow("moves", tuple(fifos), tuple(calls))
    processes["transfer"] = Process("transfer", tuple(scalars), tuple(ends), (), (region,), (("result", failed),))
    arguments = tuple(name for i in range(len(widths)) for name in names(i))
    return Program("transfer", processes, arguments, "transfer", (), tuple(ports), tuple(registers))


def places(requests: list[Request]) -> list[int]:
    """The elements of requests, one after the other."""
    return [first + stride * i for first, stride, count in requests for i in range(count)]


def packed(request: Request, width: int) -> int:
    first, stride, count = request
    return first * width // 8 | (stride & 0xFFFFFFFF) << 64 | count << 96


def random_requests(rng: random.Random, total: int, size: int) -> list[Request]:
    """Requests for `total` elements of a buffer of `size`: runs, single elements, strides of both signs."""
    found = []
    while total:
        count = min(total, rng.choice((1, 1, 2, 5, rng.randint(1, 40), rng.randint(1, 700))))
        stride = rng.choice((1, 1, 1, -1, 0, 2, 3, -7, 100))
        if (count - 1) * abs(stride) >= size:
            continue
        lowest, highest = max(0, -stride * (count - 1)), size - 1 - max(0, stride * (count - 1))
        found.append((rng.randint(lowest, highest), stride, count))
        total -= count
    return found


Move = tuple[list[Request], list[Request], bytes, bytes]  # reads, writes, what is in the source and in the target


def random_move(rng: random.Random, width: int) -> Move:
    size = rng.choice((8, 100, 800, LONG))
    total = rng.choice((1, 2, 30, 600))
    reads, writes = (random_requests(rng, total, size) for _ in range(2))
    if size == LONG:  # more than the buffers hold
        reads = writes = [(0, 1, LONG)]
    return reads, writes, rng.randbytes(size * width // 8), rng.randbytes(size * width // 8)


def case_of(case: type, widths: Sequence[int], moves: Sequence[Move]):
    """The case in which each pair makes its move."""
    scalars: list[int] = []
    lists: dict[str, list[int]] = {}
    buffers: dict[str, tuple[bytes, bytes]] = {}
    for i, (width, (reads, writes, source, target)) in enumerate(zip(widths, moves, strict=True)):
        size, after = width // 8, bytearray(target)
        for here, there in zip(places(reads), places(writes), strict=True):
            after[there * size : (there + 1) * size] = source[here * size : (here + 1) * size]
        scalars += [len(reads), len(writes), len(places(reads))]
        lists |= {f"reads{i}": [packed(one, width) for one in reads]}
        lists |= {f"writes{i}": [packed(one, width) for one in writes]}
        buffers |= {f"source{i}": (source, source), f"target{i}": (target, bytes(after))}
    return case(scalars, lists, {}, [0], buffers)
