# SPDX-License-Identifier: Apache-2.0
"""The contract between the front end (C++ to this) and the back end (this to SystemVerilog).

A program is a set of processes, one of them the top. A process runs its regions one after the other:

* `Block`: operations without control flow. It runs once, from its first operation to its last.
* `Loop`: a do-while. Each iteration runs the body, then goes on while `again` is 1. An innermost loop has exactly one
  block as its body.
* `Dataflow`: calls of other processes that run at the same time and talk through FIFOs. It ends when all have ended.

Branches are gone: operations with an effect carry a predicate, and a loop or a dataflow region carries `enter`. Where
`enter` is 0 the region does nothing, and its results hold any value.

Values are bit vectors and are assigned once. A value's name is unique in its process. Signedness belongs to the
operation (SDIV and UDIV, SLT and ULT ...), never to the value. A value is visible after its definition: in the rest of
its block, in the later regions of the same sequence, and inside them. What a loop or a dataflow region hands to its
successors is in its `results`; nothing else leaves it.

Order: within a process, accesses to one array take effect in program order, and so do accesses to one stream. Accesses
to different streams have no order, but a block may not need the effect of its own write to perform a read.

Every operation is total: the shifts and divisions below have a value for every operand. A read, a load or a call whose
predicate is 0 has any value; programs that reach the back end do not depend on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

# ---- places ----


def _shown(file: str) -> str:
    """Below the working folder as seen from it: RTL of a clone names the same lines as that of another."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


@dataclass(frozen=True)
class Location:
    """A line of C++ (1 is the first) and, for code of an inlined function, the line it was called from."""

    file: str
    line: int
    caller: Location | None = None

    def __str__(self) -> str:
        return f"{_shown(self.file)}:{self.line}"

    def chain(self) -> str:
        """All the places, innermost first."""
        return str(self) if self.caller is None else f"{self} in {self.caller.chain()}"


UNKNOWN = Location("<unknown>", 0)


# ---- values ----


@dataclass(frozen=True)
class Value:
    """A named bit vector."""

    name: str
    width: int

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True)
class Const:
    """A constant; `bits` is its pattern, 0 <= bits < 2**width."""

    width: int
    bits: int

    def __str__(self) -> str:
        return f"{self.width}'d{self.bits}" if self.bits < 1 << 16 else f"{self.width}'h{self.bits:x}"


Operand = Value | Const
TRUE = Const(1, 1)
FALSE = Const(1, 0)


# ---- operations ----


class Opcode(Enum):
    """What an operation computes. w is the width of the result, a b c are the operands.

    Arithmetic is modulo 2**w and all widths are w: ADD SUB MUL AND OR XOR.
    UDIV UREM SDIV SREM: C++ division, truncating. x / 0 is all ones, x % 0 is x, and minimum / -1 is minimum, rest 0.
    SHL LSHR ASHR: a shifted by b, b unsigned and as wide as a; b >= w shifts everything out.
    EQ NE ULT ULE SLT SLE: one bit; a and b have one width.
    SELECT: a ? b : c; a is one bit.
    ZEXT SEXT: a, narrower than w. EXTRACT: bits low to low + w - 1 of a. CONCAT: operands, most significant first.
    CLZ CTZ POPCOUNT: leading zeros, trailing zeros, ones of a, as a number of a's width (a == 0: zeros = that width,
    modulo 2**w).
    READ: the next word of stream `target`. WRITE: appends a. EMPTY, FULL: one bit, whether READ or WRITE would wait.
    LOAD: element a of array `target`, a unsigned, of any width. STORE: element a becomes b. An index beyond the array
    under a true predicate is undefined behaviour in the C++ and does not happen.
    """

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    UDIV = "udiv"
    UREM = "urem"
    SDIV = "sdiv"
    SREM = "srem"
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"
    LSHR = "lshr"
    ASHR = "ashr"
    EQ = "eq"
    NE = "ne"
    ULT = "ult"
    ULE = "ule"
    SLT = "slt"
    SLE = "sle"
    SELECT = "select"
    ZEXT = "zext"
    SEXT = "sext"
    EXTRACT = "extract"
    CONCAT = "concat"
    CLZ = "clz"
    CTZ = "ctz"
    POPCOUNT = "popcount"
    READ = "read"
    WRITE = "write"
    EMPTY = "empty"
    FULL = "full"
    LOAD = "load"
    STORE = "store"


BINARY = frozenset(
    {
        *(Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.AND, Opcode.OR, Opcode.XOR),
        *(Opcode.UDIV, Opcode.UREM, Opcode.SDIV, Opcode.SREM, Opcode.SHL, Opcode.LSHR, Opcode.ASHR),
    }
)
COMPARISONS = frozenset({Opcode.EQ, Opcode.NE, Opcode.ULT, Opcode.ULE, Opcode.SLT, Opcode.SLE})
COUNTS = frozenset({Opcode.CLZ, Opcode.CTZ, Opcode.POPCOUNT})
STREAM_ACCESSES = frozenset({Opcode.READ, Opcode.WRITE, Opcode.EMPTY, Opcode.FULL})
ARRAY_ACCESSES = frozenset({Opcode.LOAD, Opcode.STORE})
PREDICATED = STREAM_ACCESSES | ARRAY_ACCESSES
WITHOUT_RESULT = frozenset({Opcode.WRITE, Opcode.STORE})


@dataclass(frozen=True)
class Operation:
    """One operation. `target` names the stream or array of an access; `predicate` is TRUE but for accesses.

    `row` is the block of an array in blocks (Partition.BLOCK) that the C++ keeps an access in, whatever its index.
    `port` is the one that it takes, 0 or 1, of an array with two ports.
    """

    opcode: Opcode
    result: Value | None
    operands: tuple[Operand, ...]
    location: Location = UNKNOWN
    predicate: Operand = TRUE
    target: str = ""
    low: int = 0
    row: int | None = None
    port: int = 0

    def inputs(self) -> tuple[Operand, ...]:
        """Operands, and the predicate where there is one."""
        return self.operands if self.opcode not in PREDICATED else (*self.operands, self.predicate)


# ---- regions ----


@dataclass(frozen=True)
class Block:
    """Operations that run once."""

    label: str
    operations: tuple[Operation, ...]
    location: Location = UNKNOWN


@dataclass(frozen=True)
class Carried:
    """A value that an iteration takes over: `initial` in the first one, then `following` of the one before.

    `initial` is visible before the loop, `following` at the end of its body (or a constant, or a carried value).
    """

    value: Value
    initial: Operand
    following: Operand


@dataclass(frozen=True)
class Result:
    """What `value` is after a region: `source` as it was at the end of the loop's last iteration."""

    value: Value
    source: Operand


@dataclass(frozen=True)
class Pipeline:
    """How a loop is to be pipelined: the initiation interval that PIPELINE asks for, None without the pragma.

    `off` asks for one iteration after the other.
    """

    interval: int | None = None
    off: bool = False


@dataclass(frozen=True)
class Dependence:
    """A promise about the accesses of a loop to `array`.

    With `dependent` false there is no dependence of kind `direction` (RAW, WAR, WAW or all) between iterations
    (`between`) or within one; with `dependent` true those between iterations are at least `distance` iterations apart.
    """

    array: str
    between: bool
    dependent: bool
    direction: str = "all"
    distance: int = 1
    location: Location = UNKNOWN


@dataclass(frozen=True)
class TripCount:
    """Iterations per entry. Equal bounds that are `exact` were computed, others come from LOOP_TRIPCOUNT."""

    least: int
    most: int
    exact: bool = False


@dataclass(frozen=True)
class Loop:
    """A do-while; see the head of this module. Its body has one iteration at least, if `enter` is 1.

    `name` is its label in the C++, "" without one. `fresh` are the arrays that hold any values when an iteration
    starts: the C++ declares them in the body.
    """

    label: str
    carried: tuple[Carried, ...]
    body: tuple[Region, ...]
    again: Operand
    results: tuple[Result, ...] = ()
    enter: Operand = TRUE
    pipeline: Pipeline = Pipeline()
    dependences: tuple[Dependence, ...] = ()
    trip_count: TripCount | None = None
    location: Location = UNKNOWN
    name: str = ""
    fresh: tuple[str, ...] = ()

    @property
    def innermost(self) -> bool:
        """True if the body is a single block."""
        return len(self.body) == 1 and isinstance(self.body[0], Block)


class Life(Enum):
    """What a FIFO is empty at the start of: its region, its process, or (after a reset) the program.

    A process that has a FIFO of the program is the top.
    """

    REGION = "region"
    PROCESS = "process"
    PROGRAM = "program"


@dataclass(frozen=True)
class Fifo:
    """A FIFO of a dataflow region. One that outlives its region keeps what is left in it for the next run."""

    name: str
    width: int
    depth: int
    location: Location = UNKNOWN
    life: Life = Life.REGION


@dataclass(frozen=True)
class Call:
    """A process in a dataflow region.

    Scalars of the process get operands that are visible before the region. `streams` names, for each stream of the
    process, a FIFO of the region or a stream of the caller; `arrays`, for each external array, an array of the caller.
    `results` binds outputs of the process, by name, to values that are visible after the region. The process starts
    when the calls with the numbers `after`, which come before it in the region, have ended. A `task` has streams alone
    and never ends; the region does not wait for it. Its life is that of its FIFOs: each time the region begins, a task
    of the region starts anew, with the calls that FIFOs connect it with; one of the program starts once after a reset.
    """

    process: str
    scalars: tuple[tuple[str, Operand], ...]
    streams: tuple[tuple[str, str], ...]
    arrays: tuple[tuple[str, str], ...] = ()
    results: tuple[tuple[str, Value], ...] = ()
    location: Location = UNKNOWN
    after: tuple[int, ...] = ()
    task: Life | None = None


@dataclass(frozen=True)
class Dataflow:
    """Calls that run at the same time, unless one is `after` another. Each FIFO has one writer and one reader; an array
    and a stream of the caller have one user at a time. Calls that a FIFO connects are after the same calls."""

    label: str
    fifos: tuple[Fifo, ...]
    calls: tuple[Call, ...]
    enter: Operand = TRUE
    location: Location = UNKNOWN


Region = Block | Loop | Dataflow


# ---- processes ----


class Direction(Enum):
    """As seen from the process."""

    READ = "in"
    WRITE = "out"


@dataclass(frozen=True)
class Stream:
    """A stream argument. A process only reads it or only writes it."""

    name: str
    width: int
    direction: Direction
    location: Location = UNKNOWN


class Partition(Enum):
    """How an array is spread over memories: bank i % factor (cyclic), blocks, or one register per element."""

    NONE = "none"
    CYCLIC = "cyclic"
    BLOCK = "block"
    COMPLETE = "complete"


@dataclass(frozen=True)
class Array:
    """`length` elements of `width` bits, with one index: the front end flattens and splits what has more dimensions.

    `initial` are the contents when the top starts (a table, never stored to); None: any contents. An `external` array
    belongs to a caller. `storage` is the BIND_STORAGE type and implementation, in lower case ("ram_s2p", "bram").
    `first` names the array whose second read port this one is (passes/second_port.py). With `two_ports`, each of them
    reads or writes in a cycle; else there is one port to read and one to write. Of each block, the first `block`
    elements are used; 0: all.
    """

    name: str
    width: int
    length: int
    partition: Partition = Partition.NONE
    factor: int = 1
    storage: tuple[str, str] = ("", "")
    initial: tuple[int, ...] | None = None
    external: bool = False
    location: Location = UNKNOWN
    first: str = ""
    two_ports: bool = False
    block: int = 0


@dataclass(frozen=True)
class Process:
    """A function of hardware: starts with its scalars, uses its streams and arrays, ends with its outputs.

    `outputs` pairs names (`return` has the name "result") with operands that are visible at the end. `variables` are
    the C++ variables that values hold, by the names that the front end gave these values; None for a process that does
    not come from C++.
    """

    name: str
    scalars: tuple[Value, ...]
    streams: tuple[Stream, ...]
    arrays: tuple[Array, ...]
    body: tuple[Region, ...]
    outputs: tuple[tuple[str, Operand], ...] = ()
    location: Location = UNKNOWN
    variables: Mapping[str, str] | None = None


REQUEST_FIELDS = (("address", 64), ("stride", 32), ("count", 32))
REQUEST_WIDTH = 128
ADDRESS_BITS = 64
ELEMENT_BITS = (8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class MemoryPort:
    """A pointer argument of the top: elements of `width` bits (8, 16, ... 1024) behind the AXI4 master of its `bundle`.

    The process of the top has a scalar of the same name, 64 bits wide: the byte address of element 0. Accesses travel
    over streams of that process, which it may lend to the processes it calls:

    * reads: requests leave on `NAME_ar`, elements arrive on `NAME_r` in the order of the requests;
    * writes: requests leave on `NAME_aw`, elements on `NAME_w` in the order of the requests; for each request one word
      of one bit arrives on `NAME_b` once memory has answered for all of its elements, 1 if it has reported an error
      since the top started. Answers wait for as long as it takes: any number of requests may go before the first read.
    * both: within a block and from one iteration to the next, an element is read before a later one is written, and
      an answer is read before later requests for elements to read go out (schedule/dependence.py).

    A request is REQUEST_WIDTH bits, the fields of REQUEST_FIELDS from bit 0 up: the element at byte `address`, then
    `count` - 1 more, each `stride` elements (signed) after the one before; `count` is 1 or more. A port that is only
    read has no aw, w and b, one that is only written no ar and r. `burst` is the longest burst in beats, `outstanding`
    how many may be on their way (INTERFACE max_read_burst_length, num_read_outstanding and those of writes).
    """

    name: str
    width: int
    bundle: str
    reads: bool
    writes: bool
    read_burst: int = 64
    write_burst: int = 64
    read_outstanding: int = 32
    write_outstanding: int = 32
    location: Location = UNKNOWN


@dataclass(frozen=True)
class ArrayPort:
    """An external `array` of the top's process that is (a part of) the array argument `argument`.

    Its element i, with i written in the mixed radix of the lengths of `levels`, most significant first, lies in the
    memory of the argument at byte `offset` plus each digit times its stride; `levels` are (length, stride in bytes),
    the first one that of the whole argument.
    """

    array: str
    argument: str
    offset: int
    levels: tuple[tuple[int, int], ...]

    def place(self, index: int) -> int:
        """The byte of element `index`."""
        place = self.offset
        for length, stride in reversed(self.levels):
            index, digit = divmod(index, length)
            place += digit * stride
        return place


@dataclass(frozen=True)
class Field:
    """A number in an element of memory: `bits` of it from byte `offset` on, below copies of its sign or zeros."""

    offset: int
    bits: int
    is_signed: bool

    def moved(self, offset: int) -> Field:
        """The same field, `offset` bytes further."""
        return Field(self.offset + offset, self.bits, self.is_signed)


Channels = tuple[tuple[str, int], ...]  # of AXI4-Stream: "data", "last" ... and their bits, from bit 0 of a word up


@dataclass(frozen=True)
class State:
    """What the top keeps from one job to the next: a global or static variable of the C++, or a number in one.

    `name` is an external array of the top's process, or an output; `initial` is what it holds after a reset. For a
    number, `scalar` is the scalar of the process that it goes to at the start of each job ("" if the process does not
    look at it).
    """

    name: str
    initial: tuple[int, ...]
    scalar: str = ""
    is_array: bool = False
    location: Location = UNKNOWN


@dataclass(frozen=True)
class Program:
    """Processes by name, callees before callers; `top` is the last one.

    `arguments` are the C++ parameters of the top in order: each is the name of a stream, a memory port, a scalar or,
    for a scalar by reference, an output. A reference that is also read has the name of its output plus `_in` among the
    scalars. `registers` are the arguments (and "return") that INTERFACE s_axilite puts behind the AXI4-Lite port; the
    others are ports of the top. `function` is the C++ name of the top with its namespaces; `sources` are the C++ files
    that were read. `warnings` name the lines of what was accepted and has no effect. The external arrays of the top's
    process are those of `ports` and of `states`. `channels` are those of the streams of the top that have more than
    data, `stream_arrays` the streams of each argument that is an array of streams; `sequences` are arguments that are
    arrays in the C++ and streams of so many words here. `queues` are the places of streams that one process writes and
    reads; `layouts` are the fields of the structs behind pointers, in arrays and in words of streams.
    """

    top: str
    processes: dict[str, Process] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    function: str = ""
    sources: tuple[str, ...] = ()
    memories: tuple[MemoryPort, ...] = ()
    registers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    ports: tuple[ArrayPort, ...] = ()
    states: tuple[State, ...] = ()
    channels: Mapping[str, Channels] = field(default_factory=dict)
    stream_arrays: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sequences: Mapping[str, int] = field(default_factory=dict)
    queues: tuple[Location, ...] = ()
    layouts: Mapping[str, tuple[Field, ...]] = field(default_factory=dict)


def walk(regions: tuple[Region, ...]) -> Iterator[Region]:
    """All regions in program order, loops before what is in them."""
    for region in regions:
        yield region
        if isinstance(region, Loop):
            yield from walk(region.body)


def blocks_of(regions: tuple[Region, ...]) -> Iterator[Block]:
    return (region for region in walk(regions) if isinstance(region, Block))


def loops_of(regions: tuple[Region, ...]) -> Iterator[Loop]:
    return (region for region in walk(regions) if isinstance(region, Loop))


def operations_of(regions: tuple[Region, ...]) -> Iterator[Operation]:
    return (operation for block in blocks_of(regions) for operation in block.operations)


def calls_of(regions: tuple[Region, ...]) -> Iterator[Call]:
    return (call for region in walk(regions) if isinstance(region, Dataflow) for call in region.calls)


def fifos_of(regions: tuple[Region, ...]) -> Iterator[Fifo]:
    return (fifo for region in walk(regions) if isinstance(region, Dataflow) for fifo in region.fifos)


def definitions_of(operations: Iterable[Operation]) -> dict[str, Operation]:
    """The operations with a result, by its name."""
    return {operation.result.name: operation for operation in operations if operation.result is not None}


def signed(bits: int, width: int) -> int:
    """A pattern as a two's complement number."""
    return bits - (1 << width) if bits >> (width - 1) else bits
