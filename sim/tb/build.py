# SPDX-License-Identifier: Apache-2.0
"""A top as a simulation that cocotb drives, in build/sim/<top>, rebuilt when its RTL or what surrounds it changed."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from cocotb_tools import runner

from openhls.backend import simulate
from rtl.build import build, hash_files, stamp_of
from rtl.kernels import ROOT, Top

OUT = ROOT / "build/sim"
WATCH = Path(__file__).resolve().parent / "common/fifo_watch.sv"
# Bits that a kernel does not use, its names, and what the watch makes of a design are no faults here.
_WAIVED = (*simulate.WAIVED, "PINMISSING", "WIDTHEXPAND", "WIDTHTRUNC")
_GENERATE = ["-O3", "--assert", "--x-assign", "unique", "--x-initial", "unique", "--no-timing"]
# The wheel's own configuration leaves these empty.
_MAKE = {
    "CXX": "g++",
    "LINK": "g++",
    "CFG_CXXFLAGS_PCH_I": "-include",
    "CFG_LDLIBS_THREADS": "-pthread",
    "PYTHON3": "python3",
    "OPT_FAST": "-O1",
    "OPT_SLOW": "-O0",
    "OPT_GLOBAL": "-O1",
}


class Verilator(runner.Verilator):
    """cocotb's runner. Of a model only the pins and the watches can be seen from Python, which keeps it fast."""

    def _simulator_in_path_build_only(self) -> None:
        self.executable = str(simulate.verilator())

    def _build_command(self) -> list[list[str]]:
        generate, make = super()._build_command()
        make += [f"{name}={value}" for name, value in _MAKE.items()]
        make += ["OBJCACHE=ccache"] if shutil.which("ccache") else []
        return [[part for part in generate if part != "--public-flat-rw"], make]


@dataclass(frozen=True)
class Simulation:
    """The binary of a top and the folder with its registers.json and its RTL."""

    top: Top
    folder: Path
    waves: bool

    @property
    def binary(self) -> Path:
        return self.folder / ("waves" if self.waves else "model")


def simulation_of(top: Top, *, waves: bool = False, out: Path = OUT) -> Simulation:
    """The simulation of a top, built if need be. Raises OpenHlsError where the C++ is refused."""
    found = Simulation(top, out / top.name, waves)
    if stamp_of(top, out) is None:
        build(top, out)
    key = hashlib.sha256(f"{stamp_of(top, out)} {hash_files([WATCH, Path(__file__)])}".encode()).hexdigest()
    mark = found.binary / "built.key"
    if not mark.exists() or mark.read_text() != key:
        verilate(found, sorted((found.folder / "rtl").glob("*.sv")))
        mark.write_text(key)
    return found


def verilate(simulation: Simulation, files: list[Path]) -> None:
    """Compile the RTL in `files` to the binary of `simulation`."""
    shutil.rmtree(simulation.binary, ignore_errors=True)
    simulation.binary.mkdir(parents=True)
    visible = simulation.binary / "visible.vlt"
    visible.write_text(
        "`verilator_config\n"
        f'public_flat_rw -module "{simulation.top.name}" -var "*"\n'
        'public_flat_rd -module "fifo_watch" -var "*"\n'
        'public_flat_rd -module "room_watch" -var "*"\n'
    )
    waived = [f"-Wno-{name}" for name in _WAIVED]
    os.environ.setdefault("VERILATOR_ROOT", str(simulate.verilator_root()))
    Verilator().build(
        sources=[visible, *files, WATCH],
        hdl_toplevel=simulation.top.name,
        build_args=[*_GENERATE, *waived, *(["--trace-fst", "--trace-structs"] if simulation.waves else [])],
        build_dir=simulation.binary,
        timescale=("1ns", "1ps"),
        waves=simulation.waves,
        log_file=simulation.binary / "build.log",
    )
