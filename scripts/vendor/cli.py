# SPDX-License-Identifier: Apache-2.0
"""The launcher behind `make synth`, `cosim`, `export` and `link`: writes scripts, runs tools, keeps figures."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from kvdrive.xrt.image import write_text
from openhls.errors import OpenHlsError
from rtl import manifest
from rtl.kernels import ROOT, Top, find_tops
from vendor import hls, link, reports, tools
from vendor.platforms import PLATFORMS
from xrt.axlf import read_bank

OUT = ROOT / "build/vendor"


class Failed(OpenHlsError):
    """A tool ended with an error. Its output is on the terminal."""


def prepare(job: hls.HlsJob, step: str) -> None:
    """The scripts of a step, in the job's folder. Raises OpenHlsError for a kernel that cannot be linked alone."""
    job.folder.mkdir(parents=True, exist_ok=True)
    if step == "link":
        (job.folder / "STEPS.md").write_text(link.steps_text(job))
        if job.platform.shell:
            (job.folder / "link.cfg").write_text(link.link_config(job, tools.find("vitis-run") is not None))
        else:
            (job.folder / "link.tcl").write_text(link.block_design(job, os.environ.get("PS_PRESET", "")))
        step = "export"
    (job.folder / "hls.cfg").write_text(hls.config_text(job))
    (job.folder / f"{step}.tcl").write_text(hls.tcl_text(job, step))


def run_hls(job: hls.HlsJob, step: str) -> None:
    """One step of Vitis HLS; the figures of its C synthesis go into the manifest."""
    if step == "cosim":
        _write_cases(job)
    for command in tools.hls_tools().commands(step):
        _run(command, job.folder)
    found = sorted(job.folder.rglob("syn/report/csynth.xml"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise Failed(f"{job.folder}: the synthesis left no csynth.xml")
    _record(job, reports.read_csynth(found[-1], job.top.name))


def run_link(job: hls.HlsJob) -> None:
    """A bitstream of the exported kernel; the figures after place and route go into the manifest."""
    if not job.package.exists():
        run_hls(job, "export")
    linker = tools.linker(job.platform)
    if job.platform.shell:
        binary = f"{job.top.name}.xclbin"
        _run([str(linker), "-l", "-t", "hw", "--config", "link.cfg", "-o", binary, str(job.package)], job.folder)
        image = job.folder / binary
        names = [(job.top.name, name) for name in link.unit_names(job)]
        write_text(image, job.platform.shell, names, read_bank(image), round(job.platform.clock_mhz))
        routed = sorted(job.folder.glob("_x/reports/link/imp/*kernel_util_routed.rpt"))
        _record(job, reports.read_link_utilization(routed[-1], job.top.name))
        return
    _run([str(linker), "-mode", "batch", "-source", "link.tcl"], job.folder)
    folder, period = job.folder, 1000 / job.platform.clock_mhz
    _record(job, reports.read_implementation(folder / "utilization.rpt", folder / "timing.rpt", period))


def _write_cases(job: hls.HlsJob) -> None:
    """Write the small set of csim's cases, for the same testbench."""
    from importlib import import_module

    from csim import vectors

    if any(interface["kind"] == "m_axi" for interface in job.top.interfaces):
        raise Failed(f"{job.top.name} has memory ports of open length, which cosim does not take: use `make sim`")
    vectors.write(job.cases, import_module(f"csim.{job.top.kernel}").cases(np.random.default_rng(1), True))


def _record(job: hls.HlsJob, figures: reports.Figures) -> None:
    before = (manifest.load(job.top) or {}).get("vendor", {})
    manifest.record(job.top, "vendor", before | {job.platform.name: figures})


def _run(command: list[str], folder: Path) -> None:
    print(f"{folder.relative_to(ROOT)}: {' '.join(command)}", flush=True)
    status = subprocess.run(command, cwd=folder, check=False).returncode
    if status != 0:
        raise Failed(f"{Path(command[0]).name} ended with status {status}; its logs are in {folder}")


def work(top: Top, step: str, platform: str) -> None:
    """Raises OpenHlsError; MissingTool where the tools are not installed."""
    folder = OUT / platform / top.name
    job = hls.HlsJob(top, PLATFORMS[platform], folder, folder / "cases.bin")
    prepare(job, step)
    tools.hls_tools()
    if step == "link":
        tools.linker(job.platform)
    current = manifest.load(top)
    if current is None or not manifest.is_current(current):
        raise Failed(f"bitstreams/{top.name}.json is stale: run `make rtl KERNEL={top.name}`")
    if step == "link":
        run_link(job)
    else:
        run_hls(job, step)


def main(arguments: list[str] | None = None) -> int:
    """0: done; 1: a tool failed; 2: a tool is missing, or there is no such kernel."""
    parser = argparse.ArgumentParser(prog="python -m vendor", description=__doc__)
    parser.add_argument("step", choices=[*hls.STEPS, "link"])
    parser.add_argument("kernel", help="a kernel (all its tops) or a top")
    parser.add_argument("--platform", choices=PLATFORMS, default="smartssd")
    options = parser.parse_args(arguments)
    try:
        for top in find_tops(options.kernel):
            work(top, options.step, options.platform)
    except OpenHlsError as error:
        print(f"make {options.step}: {error}", file=sys.stderr)
        return 1 if isinstance(error, Failed) else 2
    return 0
