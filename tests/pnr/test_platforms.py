# SPDX-License-Identifier: Apache-2.0
"""The platforms with open tools: their files, the commands that know them, and what they change in a kernel."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from openhls.cosim.simulate import ToolError
from openhls.schedule.target import Target, platform_names
from pages import hardware
from pnr import cli, figures, route, synthesis, tools
from rtl import manifest
from rtl.build import hash_files
from rtl.kernels import ROOT, find_tops

OPEN = [name for name in platform_names() if route.flow_of(name)]


@pytest.mark.parametrize("platform", OPEN)
def test_make_link_knows_the_platform(platform: str) -> None:
    command = ["make", "--always-make", "--dry-run", "link", f"PLATFORM={platform}"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"python -m pnr page_filter --platform {platform}" in listed
    assert "-m vendor" not in listed
    extra = route.flow_of(platform)["flow"]
    assert f"extras.py {extra})" in listed
    requirements = subprocess.run(
        [sys.executable, "scripts/extras.py", extra], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"^yowasp-nextpnr-\S+==\S+$", requirements, re.MULTILINE)


@pytest.mark.parametrize("platform", OPEN)
def test_the_pins_are_those_of_the_harness(platform: str) -> None:
    assert set(route.flow_of(platform)["pins"]) <= {"clk", "load", "chain_in", "chain_out"}
    assert "clk" in route.flow_of(platform)["pins"]


def test_other_platforms_go_to_the_vendors_tools() -> None:
    command = ["make", "--always-make", "--dry-run", "link", "PLATFORM=smartssd", "KERNEL=argtopk"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "-m vendor link argtopk" in listed
    assert "-m pnr" not in listed


def test_softmax_stores_fewer_scores_where_memory_is_small(tmp_path: Path) -> None:
    (top,) = find_tops("softmax")
    macros = route.flow_of("ecp5-85")["defines"]["softmax"]
    built = cli.compile_for(top, "ecp5-85", tmp_path)
    text = (built.folder / "rtl/softmax_process.sv").read_text()
    assert re.findall(r"\.LENGTH\((\d+)\), .*RAM_STYLE\(\"block\"\)", text) == ["32768"]
    assert int(macros[0].split("=")[1]) == 2 * 32768


def test_committed_figures_are_of_the_present_kernels() -> None:
    """If this fails: make link PLATFORM=... KERNEL=..., which renews them."""
    found = [json.loads(path.read_text()) for path in figures.FOLDER.glob("*/*.json")]
    assert {"page_filter", "softmax"} <= {one["top"] for one in found}
    for one in found:
        (top,) = find_tops(one["top"])
        sources = [ROOT / source for source in manifest.load(top)["sources"]]
        assert one["source_hash"] == hash_files(sources), (one["platform"], one["top"])


def test_the_places_of_a_device_are_those_that_its_router_reports() -> None:
    for path in figures.FOLDER.glob("*/*.json"):
        found = json.loads(path.read_text())
        if "fmax_mhz" in found:
            assert found["available"] == route.flow_of(found["platform"])["available"]


def test_a_kernel_that_does_not_fit_leaves_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "FOLDER", tmp_path / "routed")
    monkeypatch.setattr(cli, "OUT", tmp_path)
    monkeypatch.setattr(figures.tools, "package_version", lambda name: name)
    kinds = ["LUT4", "CCU2C", "TRELLIS_DPR16X4", "TRELLIS_FF", *["DP16KD"] * 300, "PFUMX"]
    cells = {f"dut.{number}": {"type": kind} for number, kind in enumerate(kinds)}

    def synthesise(folder: Path, flow: str, top: str, minutes: float) -> None:
        assert minutes == 7
        (folder / synthesis.DESIGN).write_text(json.dumps({"modules": {"harness": {"cells": cells}}}))

    def route_it(folder: Path, target: Target, kernel: str, minutes: float) -> None:
        tools.run(["python", "-c", "print('busy'); print('ERROR: no place for DP16KD'); exit(1)"], folder, minutes)

    monkeypatch.setattr(cli.synthesis, "synthesise", synthesise)
    monkeypatch.setattr(cli.route, "route", route_it)
    assert cli.main(["page_filter", "--platform", "ecp5-85", "--minutes", "7"]) == 1
    assert "no place for DP16KD" in capsys.readouterr().err
    found = json.loads((tmp_path / "routed/ecp5-85/page_filter.json").read_text())
    assert found["stopped"] == "ERROR: no place for DP16KD"
    assert found["used"] == {"LUT": 9, "FF": 1, "DSP": 0, "BRAM": 300}
    row = hardware.stopped_row(found)
    assert row[2] == "synthesised; ERROR: no place for DP16KD"
    assert row[3:] == ["9 of 83,640", "1 of 83,640", "0 of 156", "300 of 208"]
    blocks = hardware.routed_tables([found], {})
    assert "| 300 of 208 |" in blocks["stopped"]
    assert "page_filter" not in blocks["routed"]
    broken = ["python", "-c", "print('busy'); print('  1: out of bounds'); exit(1)"]
    monkeypatch.setattr(cli.route, "route", lambda folder, *_: tools.run(broken, folder))
    assert cli.main(["page_filter", "--platform", "ecp5-85", "--minutes", "7"]) == 1
    found = json.loads((tmp_path / "routed/ecp5-85/page_filter.json").read_text())
    assert found["stopped"] == "python failed: 1: out of bounds"  # no folder of this machine
    endless = ["python", "-c", "while True: pass"]
    monkeypatch.setattr(cli.synthesis, "synthesise", lambda *_: tools.run(endless, tmp_path, 0.001))
    assert cli.main(["page_filter", "--platform", "ecp5-85"]) == 1
    found = json.loads((tmp_path / "routed/ecp5-85/page_filter.json").read_text())
    assert (found["stopped"], found["synthesised"]) == ("python has not ended after 0.001 minutes", False)
    assert hardware.stopped_row(found)[3:] == ["-"] * 4


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="yowasp-nothing is missing: run `make link"):
        tools.run(["yowasp-nothing"], tmp_path)
    with pytest.raises(ToolError, match="the package yowasp-nothing is missing"):
        tools.package_version("yowasp-nothing")
