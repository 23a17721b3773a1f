# SPDX-License-Identifier: Apache-2.0
"""Measured cycles of the kernels against `[cycles]` of their kernel.toml: formula + fill, within 2 %."""

import struct
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from openhls.cosim import cosimulate, parse_choice
from openhls.emit.design import Design
from openhls.ir import Direction
from openhls.pipeline import compile_program, write_design

HLS = Path(__file__).parents[3] / "hls"
CASES = 12
CHOICES = {
    "page_filter": ("page_count=16:20", "rows=1:120", "row_bytes=32:512:32", "page_bytes=4096,8192,16384"),
    "softmax": ("dense=500:1500", "tail=0:100", "masked=0:1"),
    "gemv": ("mode=0:2", "width=32:256:32", "tokens=1000:1200"),
}
TOPS = {"gemv": "gemv_g1"}


def scalars_of(design: Design, record: Path) -> Iterator[dict[str, int]]:
    """The scalars of each case of a record; its format is at the head of cosim/reference.hpp."""
    data = record.read_bytes()
    words = iter(struct.unpack(f"<{len(data) // 4}I", data))
    process = design.process
    streams = {stream.name: stream for stream in process.streams}
    outputs = [operand.width for _, operand in process.outputs]

    def take(width: int) -> int:
        return sum(next(words) << 32 * i for i in range((width + 31) // 32))

    for _ in range(next(words)):
        next(words)
        yield {scalar.name: take(scalar.width) for scalar in process.scalars}
        for direction in Direction:
            for name in design.arguments:
                if name in streams and streams[name].direction is direction:
                    for _ in range(next(words)):
                        take(streams[name].width)
        for width in outputs:
            take(width)


@pytest.mark.parametrize(
    "kernel",
    ["page_filter", pytest.param("softmax", marks=pytest.mark.slow), pytest.param("gemv", marks=pytest.mark.slow)],
)
def test_a_kernel_takes_the_cycles_it_states(kernel: str, tools: None, tmp_path: Path) -> None:
    source, top = HLS / kernel / f"{kernel}.cpp", TOPS.get(kernel, kernel)
    stated = tomllib.loads((HLS / kernel / "kernel.toml").read_text())["cycles"]
    program = compile_program(source, top, (HLS,))
    design = write_design(program, top, tmp_path)
    choices = dict(parse_choice(text) for text in CHOICES[kernel])
    found = cosimulate(
        design, source, program.function, cases=CASES, seed=1, includes=(HLS,), choices=choices, patience=5000
    )
    assert found.problem == ""
    cases = list(scalars_of(design, tmp_path / "cases.bin"))
    assert len(cases) == CASES
    for scalars, cycles in zip(cases, found.free.cycles, strict=True):
        expected = eval(f"({stated['formula']})", {"g": 1}, dict(scalars)) + stated["fill"]
        assert abs(cycles - expected) <= 0.02 * expected, f"{scalars}: {cycles} cycles, {expected} stated"
