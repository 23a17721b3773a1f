# SPDX-License-Identifier: Apache-2.0
"""Kernels on the way to a bitstream: page_filter on an ECP5 meets its clock, and its routed netlist computes. The
others give the figures that are committed."""

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from kvdrive.kernels.rtl import RtlEngine
from pnr import cli, figures, simulate, synthesis
from pnr.route import flow_of
from rtl.build import Built
from rtl.kernels import find_tops
from rtl.library import Model

pytestmark = pytest.mark.xdist_group("pnr")  # a run of the router is shared, and takes a lot
PLATFORM = "ecp5-85"
JOBS = ("half", "alternating", "bits beyond the count", "refused")


OTHERS = [
    (path.parent.name, path.stem)
    for path in sorted(figures.FOLDER.glob("*/*.json"))
    if (path.parent.name, path.stem) != (PLATFORM, "page_filter") and "stopped" not in json.loads(path.read_text())
]


def require(platform: str) -> None:
    """Skips where the router is missing."""
    router = figures.PACKAGES[flow_of(platform)["flow"]][1]
    if shutil.which(router, path=str(Path(sys.executable).parent)) is None:
        pytest.skip(f"{router} is missing: make link PLATFORM={platform}")


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory):
    """The RTL and the bitstream of page_filter, with the router's files beside them."""
    require(PLATFORM)
    (top,) = find_tops("page_filter")
    built = cli.compile_for(top, PLATFORM, tmp_path_factory.mktemp("pnr"))
    return built, cli.implement(built)


@pytest.mark.slow  # two minutes of placing and routing
def test_it_fits_and_meets_its_clock(linked) -> None:
    built, image = linked
    found = figures.collect(built)
    assert found["fmax_mhz"] >= built.design.target.clock_mhz
    assert all(0 <= found["used"][name] < found["available"][name] for name in figures.RESOURCES)
    assert set(found["paths"]) == {"page_filter", "split_bitmap", "mark_rows", "compact"}
    assert 1000 / max(path["routed"] for path in found["paths"].values()) >= found["fmax_mhz"] - 0.1
    assert image.read_bytes()[2:9] == b"Part: L"
    compare(found)


def compare(found: dict) -> None:
    """With the committed figures. If this fails: make link PLATFORM=... KERNEL=..., which renews them."""
    assert json.loads(figures.path_of(found["platform"], found["top"]).read_text()) == found


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "name"), OTHERS)
def test_the_committed_figures_can_be_had_again(platform: str, name: str, tmp_path: Path) -> None:
    require(platform)
    (top,) = find_tops(name)
    built = cli.compile_for(top, platform, tmp_path)
    image = cli.implement(built)
    found = figures.collect(built)
    assert all(found["used"][each] <= found["available"][each] for each in figures.RESOURCES)
    assert found["paths"]
    assert image.stat().st_size > 100_000
    compare(found)


def check_jobs(built: Built) -> None:
    """Runs small jobs on the netlist beside some RTL."""
    engine = RtlEngine()
    engine._models["page_filter"] = Model(simulate.library_of(built), built.design.target.clock_mhz, 1)
    cases = [dict(case) for case in import_module("csim.page_filter").cases(np.random.default_rng(1), True)]
    for name in JOBS:
        case = next(case for case in cases if case["label"].startswith(name))
        arguments = (case[key] for key in ("pages", "bitmap", "rows", "row_bytes", "page_bytes"))
        status, kept, seen, counted, needed = engine.page_filter(*arguments)
        expected = (case["status"], case["rows_seen"], case["rows_kept"])
        assert (status, seen, counted) == expected, case["label"]
        assert np.array_equal(kept, case["kept"]), case["label"]
        if case["status"] == 0:
            assert np.array_equal(needed, case["page_needed"]), case["label"]
    assert engine.cycles > 100


@pytest.mark.slow
def test_the_routed_netlist_gives_the_golden_results(linked, verilator: None) -> None:
    built, _ = linked
    check_jobs(built)


@pytest.mark.slow
def test_the_synthesised_netlist_of_a_gowin_device_gives_the_golden_results(tmp_path: Path, verilator: None) -> None:
    require("tang138k")
    (top,) = find_tops("page_filter")
    built = cli.compile_for(top, "tang138k", tmp_path)
    synthesis.synthesise(built.folder, flow_of("tang138k")["flow"], top.name)
    check_jobs(built)
