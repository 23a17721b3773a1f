# SPDX-License-Identifier: Apache-2.0
"""Writing programs of openhls.ir by hand, and running them as RTL on recorded cases. All tests of the compiler check
the rules of the IR after every pass."""

import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from simulator import needs_verilator  # noqa: F401

from openhls.cosim import simulate
from openhls.cosim.driver import build_simulation
from openhls.emit.design import Design
from openhls.ir import (
    COMPARISONS,
    TRUE,
    WITHOUT_RESULT,
    Block,
    Direction,
    Location,
    Opcode,
    Operand,
    Operation,
    Program,
    Value,
)
from openhls.pipeline import checked, write_design


@dataclass
class BlockWriter:
    """Operations one by one; each call returns the result."""

    label: str
    operations: list[Operation] = field(default_factory=list)

    def __call__(
        self, name: str, *operands: Operand, w: int = 0, to: str = "", when: Operand = TRUE, low: int = 0
    ) -> Value:
        opcode = Opcode(name)
        if opcode in COMPARISONS:
            w = 1
        elif not w and operands:
            w = operands[1 if opcode is Opcode.SELECT else 0].width
        result = Value(f"{self.label}_{len(self.operations)}", w) if w else Value("none", 1)
        kept = None if opcode in WITHOUT_RESULT else result
        place = Location("test.cpp", len(self.operations) + 1)
        self.operations.append(Operation(opcode, kept, operands, place, when, to, low))
        return result

    def block(self) -> Block:
        return Block(self.label, tuple(self.operations))


@dataclass(frozen=True)
class Case:
    """Scalars in the order of the process, without pointers; words by stream; outputs in the order of the process."""

    scalars: list[int] = field(default_factory=list)
    inputs: dict[str, list[int]] = field(default_factory=dict)
    outputs: dict[str, list[int]] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)
    buffers: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # data of each pointer, before and after


def words(value: int, width: int) -> list[int]:
    return [value >> 32 * i & 0xFFFFFFFF for i in range((width + 31) // 32)]


def record(program: Program, cases: list[Case]) -> bytes:
    """The cases as the harness reads them; the number of a case is its seed."""
    process = program.processes[program.top]
    streams = {stream.name: stream for stream in process.streams}
    data = [len(cases)]
    for seed, case in enumerate(cases):
        data.append(seed)
        pointers = {port.name for port in program.memories}
        scalars = [scalar for scalar in process.scalars if scalar.name not in pointers]
        for scalar, value in zip(scalars, case.scalars, strict=True):
            data += words(value, scalar.width)
        for direction, given in ((Direction.READ, case.inputs), (Direction.WRITE, case.outputs)):
            for name in program.arguments:
                if name in streams and streams[name].direction is direction:
                    data.append(len(given[name]))
                    for value in given[name]:
                        data += words(value, streams[name].width)
        for (_, operand), value in zip(process.outputs, case.results, strict=True):
            data += words(value, operand.width)
        for before, after in (case.buffers[name] for name in program.arguments if name in pointers):
            data.append(len(before))
            for content in (before, after):
                data += struct.unpack(f"<{(len(content) + 3) // 4}I", content + bytes(-len(content) % 4))
    return struct.pack(f"<{len(data)}I", *data)


@dataclass(frozen=True)
class Ran:
    """A design and what it did with the cases: under random stalls, without, and after a job that a reset ended."""

    design: Design
    stalled: simulate.Outcome
    free: simulate.Outcome
    reset: simulate.Outcome

    def interval(self, label: str) -> int | None:
        return next(region.interval for region in self.design.regions if region.label == label)


Runner = Callable[[Program, list[Case]], Ran]


@pytest.fixture(autouse=True)
def every_pass_is_checked() -> Iterator[None]:
    with checked():
        yield


@pytest.fixture(scope="session")
def tools(verilator: None) -> None:
    """Skips where a simulator is missing."""
    if shutil.which("yosys") is None:
        pytest.skip("Yosys is missing: apt install yosys")


@pytest.fixture(scope="session")
def new_block() -> type[BlockWriter]:
    return BlockWriter


@pytest.fixture(scope="session")
def new_case() -> type[Case]:
    return Case


@pytest.fixture(scope="session")
def write_record() -> Callable[[Path, Program, list[Case]], Path]:
    """Cases as a file for the harness, in a folder."""

    def write(folder: Path, program: Program, cases: list[Case]) -> Path:
        path = folder / "cases.bin"
        path.write_bytes(record(program, cases))
        return path

    return write


@pytest.fixture
def run_rtl(tools: None, write_record: Callable[[Path, Program, list[Case]], Path], tmp_path: Path) -> Runner:
    """Compiles, lints, reads with Yosys, and runs; the caller looks at the problems."""

    def run(program: Program, cases: list[Case]) -> Ran:
        design = write_design(program, program.top, tmp_path)
        simulate.check_readable(list(design.files), design.top)
        path = write_record(tmp_path, program, cases)
        model = build_simulation(design)
        modes = ("stalls", "none", "resets")
        return Ran(design, *(simulate.run_cases(model, path, mode=mode, patience=3000) for mode in modes))

    return run
