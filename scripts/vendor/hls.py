# SPDX-License-Identifier: Apache-2.0
"""Scripts for Vitis HLS: Tcl for vitis_hls (to 2023.1), a configuration file for v++ and vitis-run (from 2023.2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rtl.kernels import HLS, Top
from vendor.platforms import Platform

CFLAGS = f"-std=c++14 -I{HLS}"  # the last tools for the SmartSSD come with a compiler of that age
TESTBENCH_CFLAGS = f"-std=c++17 -I{HLS}"
STEPS = ("synth", "cosim", "export")


@dataclass(frozen=True)
class HlsJob:
    """One kernel on one platform. `cases`: the file of test vectors that cosim hands to the testbench."""

    top: Top
    platform: Platform
    folder: Path
    cases: Path

    @property
    def testbench(self) -> Path:
        return self.top.description.with_name(f"{self.top.kernel}_tb.cpp")

    @property
    def others(self) -> tuple[Path, ...]:
        """Sources of the kernel's other tops, which the testbench calls as well."""
        return tuple(path for path in self.top.sources if path != self.top.source)

    @property
    def package(self) -> Path:
        """The file that `export` writes."""
        suffix = "xo" if self.platform.package == "xo" else "zip"
        return self.folder / f"{self.top.name}.{suffix}"


def config_text(job: HlsJob) -> str:
    """hls.cfg: everything that v++ and vitis-run need, for all steps."""
    lines = [
        f"part={job.platform.part}",
        "",
        "[hls]",
        f"clock={job.platform.period_ns}ns",
        f"flow_target={job.platform.flow}",
        f"syn.top={job.top.name}",
        f"syn.file={job.top.source}",
        f"syn.cflags={CFLAGS}",
        f"tb.file={job.testbench}",
        *(f"tb.file={path}" for path in job.others),
        f"tb.cflags={TESTBENCH_CFLAGS}",
        f"cosim.argv={job.cases}",
        f"package.output.format={job.platform.package}",
        f"package.output.file={job.package}",
    ]
    return "\n".join(lines) + "\n"


def tcl_text(job: HlsJob, step: str) -> str:
    """The script of one step; cosim and export synthesise first."""
    lines = [
        f"open_project -reset {job.top.name}",
        f"set_top {job.top.name}",
        f"add_files {job.top.source} -cflags {{{CFLAGS}}}",
        *(f"add_files -tb {path} -cflags {{{TESTBENCH_CFLAGS}}}" for path in (job.testbench, *job.others)),
        f"open_solution -reset -flow_target {job.platform.flow} solution",
        f"set_part {job.platform.part}",
        f"create_clock -period {job.platform.period_ns} -name default",
        "csynth_design",
    ]
    if step == "cosim":
        lines.append(f"cosim_design -argv {{{job.cases}}}")
    if step == "export":
        lines.append(f"export_design -format {job.platform.package} -output {job.package}")
    return "\n".join([*lines, "exit"]) + "\n"
