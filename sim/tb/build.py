# SPDX-License-Identifier: Apache-2.0
"""A top as a simulation that cocotb drives, in build/sim/<top>, rebuilt when its RTL or what surrounds it changed."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cocotb_tools import config

from openhls import store
from openhls.cosim import simulate
from rtl.build import build, hash_files, stamp_of
from rtl.kernels import ROOT, Top

OUT = ROOT / "build/sim"
WATCH = Path(__file__).resolve().parent / "common/fifo_watch.sv"
# Bits that a kernel does not use, its names, and what the watch makes of a design are no faults here.
_WAIVED = (*simulate.WAIVED, "PINMISSING", "WIDTHEXPAND", "WIDTHTRUNC")
_GENERATE = ["-O3", "--assert", "--x-assign", "unique", "--x-initial", "unique", "--no-timing"]
_RUNTIME = ("verilated.cpp", "verilated_dpi.cpp", "verilated_vpi.cpp", "verilated_threads.cpp")


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
    with store.alone(out / f"{top.name}.lock"):
        if stamp_of(top, out) is None:
            build(top, out)
        tools = (*simulate.tools(), cocotb_version())
        made = hash_files([WATCH, Path(__file__), Path(simulate.__file__)])
        key = hashlib.sha256(f"{stamp_of(top, out)} {made} {tools}".encode()).hexdigest()
        mark = found.binary / "built.key"
        if not mark.exists() or mark.read_text() != key:
            verilate(found, sorted((found.folder / "rtl").glob("*.sv")))
            mark.write_text(key)
    return found


def cocotb_version() -> str:
    return metadata.version("cocotb")


def verilate(simulation: Simulation, files: list[Path]) -> None:
    """Compile the RTL in `files` to the binary of `simulation`.

    Of a model only the pins and the watches can be seen from Python, which keeps it fast. All paths are relative, so
    that the C++ is the same in another copy of this tree."""
    folder, top = simulation.binary, simulation.top.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "visible.vlt").write_text(
        "`verilator_config\n"
        f'public_flat_rw -module "{top}" -var "*"\n'
        'public_flat_rd -module "fifo_watch" -var "*"\n'
        'public_flat_rd -module "room_watch" -var "*"\n'
    )
    waived = [f"-Wno-{name}" for name in _WAIVED]
    waves = ["--trace-fst", "--trace-structs"] if simulation.waves else []
    names = ["--cc", "--vpi", "--Mdir", ".", "--top-module", top, "--prefix", "Vtop", "--timescale", "1ns/1ps"]
    sources = [os.path.relpath(file, folder) for file in (*files, WATCH)]
    simulate.run([simulate.verilator(), *names, *_GENERATE, *waived, *waves, "visible.vlt", *sources], cwd=folder)
    flags = ["-DVERILATOR=1", *(f"-DVM_TRACE{kind}={int(simulation.waves)}" for kind in ("", "_FST"))]
    runtime = (*_RUNTIME, "verilated_fst_c.cpp") if simulation.waves else _RUNTIME
    main = config.share_dir / "lib/verilator/verilator.cpp"
    objects = simulate.compile_verilated(folder, flags, ROOT, [str(main)])
    objects += simulate.library_objects(runtime, flags)
    libraries = [f"-Wl,-rpath,{config.libs_dir}", f"-L{config.libs_dir}", "-lcocotbvpi_verilator", "-pthread"]
    libraries += ["-llz4", "-lz"] if simulation.waves else []
    simulate.run(["g++", *objects, *libraries, "-o", folder / top])
    for path in (*objects, *folder.glob("*.cpp"), *folder.glob("*.h")):
        if path.parent == folder:
            path.unlink()
