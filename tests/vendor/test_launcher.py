# SPDX-License-Identifier: Apache-2.0
"""The launcher: which programs run under which names, and what it says without them. The programs are scripts here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rtl import manifest
from rtl.kernels import ROOT, find_tops
from vendor import cli, tools
from vendor.platforms import PLATFORMS

CSYNTH = """<profile><ReportVersion><Version>2021.2</Version></ReportVersion>
<UserAssignments><TopModelName>softmax</TopModelName></UserAssignments>
<PerformanceEstimates><SummaryOfTimingAnalysis><EstimatedClockPeriod>2.9</EstimatedClockPeriod>
</SummaryOfTimingAnalysis></PerformanceEstimates>
<AreaEstimates><Resources><LUT>1000</LUT><FF>2</FF><DSP>3</DSP><BRAM_18K>4</BRAM_18K></Resources></AreaEstimates>
</profile>"""


def install(folder: Path, *programs: str, body: str = "true") -> Path:
    """Programs that note their arguments and then do `body`."""
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        path = folder / program
        path.write_text(f'#!/bin/bash\necho "{program} $*" >> {folder}/calls\n{body}\n')
        path.chmod(0o755)
    return folder


def test_each_installation_gets_its_own_commands(tmp_path: Path) -> None:
    old = install(tmp_path / "old/bin", "vitis_hls", "v++")
    new = install(tmp_path / "new/bin", "vitis-run", "v++")
    classic = tools.hls_tools({"PATH": str(old)})
    assert classic.commands("cosim") == [[str(old / "vitis_hls"), "-f", "cosim.tcl"]]
    unified = tools.hls_tools({"PATH": "", "XILINX_VITIS": str(new.parent)})
    where = ["--config", "hls.cfg", "--work_dir", "hls"]
    synth = [str(new / "v++"), "-c", "--mode", "hls", *where]
    assert unified.commands("synth") == [synth]
    assert unified.commands("cosim") == [synth, [str(new / "vitis-run"), "--mode", "hls", "--cosim", *where]]
    assert unified.commands("export") == [synth, [str(new / "vitis-run"), "--mode", "hls", "--package", *where]]


def test_the_linker_depends_on_the_platform(tmp_path: Path) -> None:
    bin_ = install(tmp_path / "bin", "v++", "vivado")
    environment = {"PATH": str(bin_)}
    assert tools.linker(PLATFORMS["smartssd"], environment) == bin_ / "v++"
    assert tools.linker(PLATFORMS["zu17eg"], environment) == bin_ / "vivado"


@pytest.mark.parametrize(
    ("step", "kernel", "platform", "missing"),
    [
        ("synth", "softmax", "smartssd", "Vitis HLS is missing (vitis_hls, or v++ and vitis-run)"),
        ("link", "argtopk", "zu17eg", "PS_PRESET is not set"),
        ("link", "softmax", "smartssd", "softmax has stream ports"),
        ("export", "nothing", "smartssd", "no kernel or top is called nothing"),
    ],
)
def test_without_the_tools_one_line_says_what_is_missing(step: str, kernel: str, platform: str, missing: str) -> None:
    environment = {"PATH": "", "PYTHONPATH": f"{ROOT}/sim:{ROOT}/scripts"}
    command = [sys.executable, "-m", "vendor", step, kernel, "--platform", platform]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"make {step}: {missing}")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for scripts and manifests, with a current manifest of softmax that has no figures."""
    monkeypatch.setattr(cli, "OUT", tmp_path / "jobs")
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    monkeypatch.setattr(manifest, "FOLDER", tmp_path / "bitstreams")
    monkeypatch.setattr(manifest, "is_current", lambda _: True)
    (top,) = find_tops("softmax")
    manifest.save(top, {"top": "softmax"})
    return tmp_path


def test_figures_of_the_synthesis_reach_the_manifest(workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = "softmax/solution/syn/report"
    body = f"mkdir -p {report}; cat > {report}/csynth.xml <<'END'\n{CSYNTH}\nEND"
    bin_ = install(workshop / "bin", "vitis_hls", body=body)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    assert cli.main(["synth", "softmax"]) == 0
    assert (bin_ / "calls").read_text() == "vitis_hls -f synth.tcl\n"
    (top,) = find_tops("softmax")
    figures = manifest.load(top)["vendor"]["smartssd"]
    assert (figures["tool"], figures["LUT"], figures["BRAM"]) == ("Vitis HLS 2021.2", 1000, 2.0)
    assert cli.main(["cosim", "softmax", "--platform", "zu17eg"]) == 0
    assert (workshop / "jobs/zu17eg/softmax/cases.bin").stat().st_size > 0
    assert set(manifest.load(top)["vendor"]) == {"smartssd", "zu17eg"}


def test_a_tool_that_fails_is_named(workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    bin_ = install(workshop / "bin", "vitis_hls", body="exit 3")
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    assert cli.main(["synth", "softmax"]) == 1
    assert "vitis_hls ended with status 3" in capsys.readouterr().err
