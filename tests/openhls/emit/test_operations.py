# SPDX-License-Identifier: Apache-2.0
"""Every operation as RTL, at many widths, against its definition."""

import random

from openhls.evaluate import evaluate
from openhls.ir import Const, Direction, Opcode, Operand, Process, Program, Stream, Value

SEED = 2
BINARY = ["add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "eq", "ne", "ult", "ule", "slt", "sle"]
DIVISIONS = ["udiv", "urem", "sdiv", "srem"]
COUNTS = ["clz", "ctz", "popcount"]
WIDTHS = (1, 2, 7, 8, 31, 33, 64, 90)
WORD = 256


def operations(block, word: Value, rng: random.Random) -> list[tuple[Value, object]]:
    """Results, and how to work each out from the word."""
    found = []

    def part(width: int) -> tuple[Value, int]:
        low = rng.randrange(WORD - width + 1)
        return block("extract", word, w=width, low=low), low

    def make(name: str, operands: list[tuple[Operand, int | None]], width: int, low: int = 0) -> None:
        result = block(name, *(operand for operand, _ in operands), w=width, low=low)

        def expected(bits: int) -> int:
            values = [
                operand.bits if isinstance(operand, Const) else bits >> at & ((1 << operand.width) - 1)
                for operand, at in operands
            ]
            widths = [operand.width for operand, _ in operands]
            return evaluate(Opcode(name), width, values, widths, low)

        found.append((result, expected))

    for width in WIDTHS:
        for name in BINARY:
            make(name, [part(width), part(width)], 1 if Opcode(name).value in BINARY[9:] else width)
            constant = Const(
                width, rng.getrandbits(width) if name not in ("shl", "lshr", "ashr") else rng.randrange(width)
            )
            make(name, [part(width), (constant, None)], 1 if name in BINARY[9:] else width)
        for name in COUNTS:
            make(name, [part(width)], width)
        for name in ("zext", "sext"):
            make(name, [part(width)], width + rng.randint(1, 40))
        make("select", [part(1), part(width), part(width)], width)
        make("extract", [part(width)], max(1, width // 2), width // 3)
        make("concat", [part(width), part(3), part(1)], width + 4)
    for name in DIVISIONS:
        for width in (1, 5, 16):
            make(name, [part(width), part(width)], width)
    return found


def test_every_operation_is_what_it_says(new_block, new_case, run_rtl) -> None:
    rng = random.Random(SEED)
    block = new_block("all")
    word = block("read", w=WORD, to="words")
    found = operations(block, word, rng)
    total = sum(result.width for result, _ in found)
    block("write", block("concat", *(result for result, _ in reversed(found)), w=total), to="results")
    streams = (Stream("words", WORD, Direction.READ), Stream("results", total, Direction.WRITE))
    process = Process("operations", (), streams, (), (block.block(),))
    cases = []
    for number in range(120):
        bits = rng.getrandbits(WORD) if number > 2 else (0, (1 << WORD) - 1, 1)[number]
        joined, at = 0, 0
        for result, expected in found:
            joined |= expected(bits) << at
            at += result.width
        cases.append(new_case([], {"words": [bits]}, {"results": [joined]}))
    ran = run_rtl(Program("operations", {"operations": process}, ("words", "results")), cases)
    assert (ran.stalled.problem, ran.free.problem) == ("", "")
    assert ran.stalled.words == len(cases)
