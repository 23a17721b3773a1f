# SPDX-License-Identifier: Apache-2.0
"""Narrow programs mean the same to the interpreter; what can go is gone; faults of the pass are found."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from ir_interpreter import interpret

from openhls.errors import OpenHlsError
from openhls.fuzz.generate import random_program, top_name
from openhls.ir import (
    BINARY,
    COMPARISONS,
    COUNTS,
    Array,
    Block,
    Carried,
    Const,
    Direction,
    Loop,
    Opcode,
    Operand,
    Operation,
    Process,
    Program,
    Stream,
    Value,
    blocks_of,
    loops_of,
)
from openhls.passes import narrow
from openhls.passes.narrowing import assume, demand, emitter, narrower, ranges, shape, transfer, writer
from openhls.passes.narrowing.facts import Fact, between, exactly
from openhls.pipeline import compile_program
from openhls.verify import verify

PROGRAMS = Path(__file__).parents[1] / "programs"
SEEDS = range(1000, 1003)
WORDS = 1000
KINDS = sorted(BINARY | COMPARISONS | COUNTS, key=lambda opcode: opcode.value)  # the same in every run

HEAD = "#include <ap_int.h>\n#include <hls_stream.h>\n"
FIELDS = """
struct Item { ap_uint<7> key; ap_int<20> unused; ap_int<16> level; bool last; };
static void produce(hls::stream<ap_uint<32> >& in, hls::stream<Item>& items, int n) {
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE
    const ap_uint<32> word = in.read();
    items.write(Item{ap_uint<7>(word), ap_int<20>(word >> 7), ap_int<16>(ap_int<5>(word >> 9)), i == n - 1});
  }
}
static void consume(hls::stream<Item>& items, hls::stream<ap_uint<32> >& out, int n) {
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE
    const Item item = items.read();
    out.write(ap_uint<32>(item.key) + ap_uint<32>(item.level));
  }
}
void fields(hls::stream<ap_uint<32> >& in, hls::stream<ap_uint<32> >& out, int n) {
#pragma HLS DATAFLOW
  hls::stream<Item> items("items");
  produce(in, items, n);
  consume(items, out, n);
}
"""
WALK = """
void walk(hls::stream<ap_uint<32> >& in, hls::stream<ap_uint<32> >& out) {
  int at = 0, rounds = 0;
  for (int i = 0; i < 1000; ++i) {
#pragma HLS PIPELINE
    const int word = in.read();
    out.write(ap_uint<32>((word & 15) * 3 + (i % 8) + at));
    at = at == 46 ? 0 : at + 1;
    rounds += 0 * word;
  }
}
"""
LEVELS = """
void levels(hls::stream<ap_uint<16> >& in, hls::stream<ap_int<64> >& out, int n) {
  ap_uint<40> table[16];
  for (int i = 0; i < 16; ++i) table[i] = i * 3;
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE
    const long a = ap_int<16>(in.read()), b = table[i % 16];
    out.write(ap_int<64>(a * b));
  }
}
"""


def compiled(folder: Path, text: str, top: str) -> Program:
    source = folder / f"{top}.cpp"
    source.write_text(HEAD + text)
    return compile_program(source, top)


class Dense:
    """Writes a loop full of operations of all kinds and widths, on words, carried values, an array and a table."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.operations: list[Operation] = []
        self.values: list[Value] = []
        self.count = 0

    def emit(self, opcode: Opcode, width: int, *operands: Operand, low: int = 0, target: str = "") -> Value:
        self.count += 1
        value = Value(f"v{self.count}", width)
        self.operations.append(Operation(opcode, value, operands, target=target, low=low))
        self.values.append(value)
        return value

    def operand(self, width: int) -> Operand:
        """An operand of the given width: a constant, or a value cut or extended."""
        if self.rng.random() < 0.25:
            number = self.rng.choice((self.rng.getrandbits(width), self.rng.randrange(8), -self.rng.randrange(1, 8)))
            return Const(width, number & ((1 << width) - 1))
        value = self.rng.choice([*self.values[-10:], *self.values[:4], self.word, self.word])
        if value.width > width:
            low = self.rng.choice((0, value.width - width, self.rng.randrange(value.width - width + 1)))
            return self.emit(Opcode.EXTRACT, width, value, low=low)
        extension = self.rng.choice((Opcode.ZEXT, Opcode.SEXT))
        return value if value.width == width else self.emit(extension, width, value)

    def idiom(self) -> None:
        """The high half of a sum, or a clamped number that is compared with the end of its range."""
        if self.rng.random() < 0.5:
            pair = self.emit(Opcode.CONCAT, 16, self.operand(8), self.emit(Opcode.EXTRACT, 8, self.word, low=12))
            total = self.emit(Opcode.ADD, 16, pair, self.operand(16))
            self.emit(Opcode.EXTRACT, 8, total, low=8)
            return
        end = self.rng.randrange(1, 7)
        number = self.emit(Opcode.EXTRACT, 3, self.word, low=self.rng.randrange(17))
        below = self.emit(self.rng.choice((Opcode.ULT, Opcode.ULE)), 1, number, Const(3, end))
        clamped = self.emit(Opcode.SELECT, 3, below, Const(3, end + 1), number)
        self.emit(Opcode.EQ, 1, clamped, Const(3, end))

    def operation(self) -> None:
        rng = self.rng
        if rng.random() < 0.15:
            self.idiom()
            return
        opcode = rng.choice((*KINDS, *[Opcode.SELECT] * 6, *[Opcode.CONCAT] * 2, Opcode.LOAD))
        width = rng.choice((1, 3, 6, 8, 16, 20, 33))
        if opcode is Opcode.LOAD:
            target = rng.choice(("memory", "table"))
            self.emit(opcode, 12, self.operand(2), target=target)
        elif opcode is Opcode.SELECT:
            self.emit(opcode, width, self.operand(1), self.operand(width), self.operand(width))
        elif opcode is Opcode.CONCAT:
            self.emit(opcode, width + 5, self.operand(width), self.operand(5))
        elif opcode in COUNTS:
            self.emit(opcode, width, self.operand(width))
        else:
            self.emit(opcode, 1 if opcode in COMPARISONS else width, self.operand(width), self.operand(width))

    def program(self) -> Program:
        array, table = Array("memory", 12, 4), Array("table", 12, 4, initial=(5, 4000, 7, 1))
        fill = tuple(Operation(Opcode.STORE, None, (Const(2, i), Const(12, i)), target="memory") for i in range(4))
        counter, kept, sum_ = Value("counter", 16), Value("kept", 20), Value("sum", 24)
        self.values = [counter, kept, sum_]
        self.word = self.emit(Opcode.READ, 20, target="words")
        for _ in range(30):
            self.operation()
        store = (self.operand(2), self.operand(12))
        self.operations.append(Operation(Opcode.STORE, None, store, predicate=self.operand(1), target="memory"))
        for value in self.rng.sample(self.values, 12):
            word = self.emit(Opcode.CONCAT, 40, Const(40 - value.width, 0), value)
            self.operations.append(Operation(Opcode.WRITE, None, (word,), target="found"))
        following = self.emit(Opcode.ADD, 16, counter, Const(16, 1))
        carried = (
            Carried(counter, Const(16, 0), following),
            Carried(kept, Const(20, 3), self.operand(20)),
            Carried(sum_, Const(24, 0), self.emit(Opcode.ADD, 24, sum_, self.operand(24))),
        )
        again = self.emit(self.rng.choice((Opcode.NE, Opcode.ULT, Opcode.SLT)), 1, following, Const(16, 24))
        loop = Loop("loop", carried, (Block("body", tuple(self.operations)),), again)
        streams = (Stream("words", 20, Direction.READ), Stream("found", 40, Direction.WRITE))
        process = Process("dense", (), streams, (array, table), (Block("fill", fill), loop))
        program = Program("dense", {"dense": process}, ("words", "found"))
        verify(program)
        return program


@pytest.fixture(scope="session")
def dense() -> list[Program]:
    return [Dense(seed).program() for seed in range(60)]


@pytest.fixture(scope="session")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> list[Program]:
    """Random C++, compiled once."""
    folder = tmp_path_factory.mktemp("narrow")
    return [compiled(folder, random_program(seed), top_name(seed)) for seed in SEEDS]


def arguments_of(program: Program) -> set[str]:
    """Arguments that lie in memory: pointers and arrays."""
    return {port.name for port in program.memories} | {port.argument for port in program.ports}


def outcome(program: Program, rng: random.Random) -> object:
    """Everything that can be seen of a run on random inputs, or how it ended otherwise."""
    top = program.processes[program.top]

    def number(width: int) -> int:
        small = rng.randrange(min(16, 1 << width))
        return rng.choice((rng.getrandbits(width), small, (1 << width) - 1 - small))

    scalars = {v.name: rng.randrange(13) if v.name == "n" else number(v.width) for v in top.scalars}
    ports = {f"{port.name}_{kind}" for port in program.memories for kind in ("ar", "r", "aw", "w", "b")}
    reads = [stream for stream in top.streams if stream.direction is Direction.READ and stream.name not in ports]
    buffers = {name: rng.randbytes(1 << 12) for name in sorted(arguments_of(program))}
    words = {stream.name: [number(stream.width) for _ in range(WORDS)] for stream in reads}
    try:
        found = interpret(program, scalars, words, buffers=buffers)
    except OpenHlsError as error:
        return type(error)
    return found.outputs, found.streams, {name: len(left) for name, left in found.unread.items()}, found.buffers


def differs(program: Program, cases: int = 2) -> bool:
    changed = narrow.narrow(program)
    return any(outcome(program, random.Random(n)) != outcome(changed, random.Random(n)) for n in range(cases))


def operations(program: Program) -> list[Operation]:
    return [
        op for process in program.processes.values() for block in blocks_of(process.body) for op in block.operations
    ]


def widths(program: Program, opcode: Opcode) -> list[int]:
    return [op.result.width for op in operations(program) if op.opcode is opcode and op.result is not None]


def loops(program: Program) -> list[Loop]:
    return [loop for process in program.processes.values() for loop in loops_of(process.body)]


@pytest.mark.parametrize("width", [1, 2, 7])
def test_a_number_needs_no_more_bits_than_it_has(width: int) -> None:
    facts = [exactly(width, bits) for bits in range(1 << width)]
    for fact in facts:
        number = fact.least
        needed = next(n for n in range(1, width + 1) if -(1 << (n - 1)) <= number < 1 << (n - 1))
        assert fact.signed_bits == needed


def test_random_operations_keep_their_meaning(dense: list[Program]) -> None:
    assert [seed for seed, program in enumerate(dense) if differs(program)] == []


def test_random_programs_keep_their_meaning(fuzzed: list[Program]) -> None:
    assert [program.top for program in fuzzed if differs(program)] == []


@pytest.mark.parametrize(("file", "top"), [("stages", "stages"), ("search", "search"), ("nests", "nests")])
def test_programs_keep_their_meaning(file: str, top: str) -> None:
    program = compile_program(PROGRAMS / f"{file}.cpp", top)
    assert not differs(program, 5)
    assert not differs(narrow.narrow(program), 2)


def test_fields_that_nobody_reads_do_not_travel(tmp_path: Path) -> None:
    program = compiled(tmp_path, FIELDS, "fields")
    narrowed = narrow.narrow(program)
    assert not differs(program)
    (stream,) = [s for s in narrowed.processes["consume"].streams if s.direction is Direction.READ]
    assert stream.width == 7 + 16  # the key and the level


def test_counters_are_as_wide_as_their_ends(tmp_path: Path) -> None:
    narrowed = narrow.narrow(compiled(tmp_path, WALK, "walk"))
    (loop,) = loops(narrowed)
    assert sorted(item.value.width for item in loop.carried) == [6, 10]  # below 47, and below 1000


def test_products_are_of_the_numbers_that_are_there(tmp_path: Path) -> None:
    program = compiled(tmp_path, LEVELS, "levels")
    narrowed = narrow.narrow(program)
    assert not differs(program)
    assert widths(narrowed, Opcode.MUL) == [22]  # 16 bits by 0 to 45
    (array,) = narrowed.processes["levels"].arrays
    assert array.width == 6


def test_the_top_keeps_its_ports(fuzzed: list[Program]) -> None:
    for program in fuzzed:
        before, after = (each.processes[each.top] for each in (program, narrow.narrow(program)))
        assert before.scalars == after.scalars
        assert before.streams == after.streams
        assert [(name, operand.width) for name, operand in before.outputs] == [
            (name, operand.width) for name, operand in after.outputs
        ]


def clipped(width: int, low: int, high: int) -> Fact:
    """Sums that do not wrap."""
    full = (1 << width) - 1
    return between(width, max(0, min(low, full)), max(0, min(high, full)))


def too_narrow(fact: Fact, wanted: int, floor: int = 0) -> shape.Shape:
    """Signed numbers lose their sign bit."""
    found = SOUND_PART(fact, wanted, floor)
    return shape.Shape(found.width, found.live >> 1, 0, True) if found.signed and found.kept > 1 else found


def swapped(self: emitter.Emitter, condition: object, then: object, otherwise: object) -> object:
    return SOUND_SELECT(self, condition, otherwise, then)


def unsigned_division(self: narrower.Narrower) -> object:
    operands = [self.emitter.low_bits(operand, self.fact.width) for operand in self.operands]
    opcode = {Opcode.SDIV: Opcode.UDIV, Opcode.SREM: Opcode.UREM}.get(self.origin.opcode, self.origin.opcode)
    return self.emitter.fold(opcode, self.fact.width, *operands)


SOUND_PART = shape.low_part
SOUND_SELECT = emitter.Emitter.select
FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "sums never wrap": lambda patch: patch.setattr(transfer, "wrapped", clipped),
    "no sign bit": lambda patch: [patch.setattr(each, "low_part", too_narrow) for each in (narrower, writer)],
    "select swapped": lambda patch: patch.setattr(emitter.Emitter, "select", swapped),
    "division without sign": lambda patch: patch.setattr(narrower.Narrower, "division", unsigned_division),
    "sums need no lower bits": lambda patch: [
        patch.setattr(demand, "BITWISE", demand.BITWISE | demand.LOW_BITS),
        patch.setattr(demand, "LOW_BITS", frozenset()),
    ],
    "loops do not go round": lambda patch: patch.setattr(
        ranges.Ranges, "next_round", lambda self, loop, held, caps: [self.enter_body(loop, held), *[held]][1]
    ),
    "strict comparisons are not": lambda patch: patch.setattr(
        assume, "NEGATED", {**assume.NEGATED, Opcode.ULT: Opcode.ULT, Opcode.SLT: Opcode.SLT}
    ),
    "extraction from bit 0": lambda patch: patch.setattr(
        emitter, "parts", lambda self, operands, low, width: SOUND_PARTS(self, operands, 0, width)
    ),
    "constants with a digit missing": lambda patch: patch.setattr(
        emitter, "signed_digits", lambda bits, width: SOUND_DIGITS(bits, width)[:1]
    ),
}
SOUND_PARTS = emitter.parts
SOUND_DIGITS = emitter.signed_digits


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, dense: list[Program], monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)

    def fails(program: Program) -> bool:
        try:
            return differs(program)
        except (OpenHlsError, AssertionError, ValueError):
            return True

    assert any(fails(program) for program in dense)
