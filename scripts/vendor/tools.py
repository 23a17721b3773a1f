# SPDX-License-Identifier: Apache-2.0
"""Finds the vendor's programs, whose names depend on the version."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from openhls.errors import OpenHlsError
from vendor.platforms import Platform

# What settings64.sh exports, in the order in which they may hold a program.
VARIABLES = ("XILINX_VITIS", "XILINX_HLS", "XILINX_VIVADO")


class MissingTool(OpenHlsError):
    """No installation has the program. The message names it and the places that were searched."""


def find(program: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The program on PATH, or under bin/ of the folder that a variable names."""
    places = [environment.get("PATH", "")]
    places += [str(Path(environment[name]) / "bin") for name in VARIABLES if environment.get(name)]
    found = shutil.which(program, path=os.pathsep.join(places))
    return None if found is None else Path(found)


@dataclass(frozen=True)
class HlsTools:
    """Vitis HLS under one of its names: `classic` is vitis_hls; else v++ synthesises and vitis-run does the rest."""

    classic: Path | None
    compiler: Path | None
    runner: Path | None

    @property
    def unified(self) -> bool:
        return self.compiler is not None and self.runner is not None

    def commands(self, step: str) -> list[list[str]]:
        """Command lines of a step, to run in the job's folder with hls.cfg and <step>.tcl in it."""
        if not self.unified:
            return [[str(self.classic), "-f", f"{step}.tcl"]]
        where = ["--config", "hls.cfg", "--work_dir", "hls"]
        commands = [[str(self.compiler), "-c", "--mode", "hls", *where]]
        after = {"synth": None, "cosim": "--cosim", "export": "--package"}[step]
        return commands + ([[str(self.runner), "--mode", "hls", after, *where]] if after else [])


def hls_tools(environment: Mapping[str, str] = os.environ) -> HlsTools:
    """Raises MissingTool. vitis-run came with 2023.2; v++ alone is older and has no HLS mode worth using."""
    found = HlsTools(*(find(program, environment) for program in ("vitis_hls", "v++", "vitis-run")))
    if not found.unified and found.classic is None:
        raise MissingTool(_missing("Vitis HLS", "vitis_hls, or v++ and vitis-run"))
    return found


def linker(platform: Platform, environment: Mapping[str, str] = os.environ) -> Path:
    """v++ for a Vitis platform, else Vivado. Raises MissingTool."""
    product, program = ("Vitis", "v++") if platform.shell else ("Vivado", "vivado")
    found = find(program, environment)
    if found is None:
        raise MissingTool(_missing(product, program))
    return found


def _missing(product: str, programs: str) -> str:
    return f"{product} is missing ({programs}): not on PATH nor under {', '.join(VARIABLES)}"
