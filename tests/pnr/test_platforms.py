# SPDX-License-Identifier: Apache-2.0
"""The platforms with open tools: their files, the commands that know them, and what they change in a kernel."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from openhls.backend.simulate import ToolError
from openhls.backend.target import platform_names, target_of
from pnr import figures, route, tools
from rtl import manifest
from rtl.build import build, hash_files
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
    macros = tuple(route.flow_of("ecp5-85")["defines"]["softmax"])
    built = build(top, tmp_path, target_of(platform="ecp5-85"), macros)
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


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="yowasp-nothing is missing: run `make link"):
        tools.run(["yowasp-nothing"], tmp_path)
    with pytest.raises(ToolError, match="the package yowasp-nothing is missing"):
        tools.package_version("yowasp-nothing")
