# SPDX-License-Identifier: Apache-2.0
"""C++ against RTL, with random inputs and random stalls on every stream."""

from pathlib import Path

import pytest

from openhls.backend.cosim import Cosimulation, cosimulate, parse_choice
from openhls.backend.design import Design, write_design
from openhls.frontend.compile import compile_program

ROOT = Path(__file__).parents[3]
PROGRAMS = ROOT / "tests/openhls/programs"
SEED = 1

FAST = {
    "scalars": ("flag=0:1", "a=-32768,-5:5,32767", "b=0:255", "one=0:1", "wide=-1000:1000", "both=-16:15"),
    "conditional": (),
    "histogram": ("n=0:100",),
    "passes": ("n=0:32", "count=0:4"),
    "search": ("n=0:8", "mode=0:8"),
    "stages": ("words=0:24", "shift=0:31", "negate=0:1"),
}
SLOW = {
    "arithmetic": ("n=0:20",),
    "lanes": ("n=0:20", "pick=0:7"),
    "scale": (),
    "two_pass": ("rows=0:4", "columns=0:64"),
}

KERNELS = {
    "page_filter": (
        *("page_filter", "page_count=0:3", "rows=0:300"),
        *("row_bytes=32,64,96:160:32,512", "page_bytes=4096,4096,4096,8192,5"),
    ),
    "softmax": ("softmax", "dense=0:60", "tail=0:20", "masked=0:1"),
    "gemv": ("gemv_g1", "mode=0:2", "width=32:128:32,32,17", "tokens=1:40"),
}


def compared(
    source: Path, top: str, out: Path, choices: tuple[str, ...], cases: int, seed: int = SEED
) -> tuple[Design, Cosimulation]:
    includes = (ROOT / "hls",)
    program = compile_program(source, top, includes)
    design = write_design(program, top, out)
    sets = dict(parse_choice(text) for text in choices)
    found = cosimulate(
        design, source, program.function, cases=cases, seed=seed, includes=includes, choices=sets, patience=5000
    )
    return design, found


def check(name: str, choices: tuple[str, ...], out: Path) -> None:
    _, found = compared(PROGRAMS / f"{name}.cpp", name, out, choices, 30)
    assert found.problem == ""
    assert found.free.words > 0


@pytest.mark.parametrize("name", FAST)
def test_a_program_is_the_same_in_hardware(name: str, tools: None, tmp_path: Path) -> None:
    check(name, FAST[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_large_program_is_the_same_in_hardware(name: str, tools: None, tmp_path: Path) -> None:
    check(name, SLOW[name], tmp_path)


def test_page_filter_is_the_same_in_hardware_at_a_beat_per_cycle(tools: None, tmp_path: Path) -> None:
    top, *choices = KERNELS["page_filter"]
    design, found = compared(ROOT / "hls/page_filter/page_filter.cpp", top, tmp_path, tuple(choices), 30)
    assert found.problem == ""
    intervals = {region.label: region.interval for region in design.regions if region.wish}
    assert intervals == {"split": 1, "mark": 1, "compact": 1}
    assert all(region.met for region in design.regions)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "gemv"])
def test_a_kernel_is_the_same_in_hardware(name: str, tools: None, tmp_path: Path) -> None:
    top, *choices = KERNELS[name]
    design, found = compared(ROOT / f"hls/{name}/{name}.cpp", top, tmp_path, tuple(choices), 40)
    assert found.problem == ""
    assert [region.label for region in design.regions if region.wish and region.interval != region.wish] == []
