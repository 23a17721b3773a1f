# SPDX-License-Identifier: Apache-2.0
"""Images of the project's kernels for the emulated card, from the manifests in bitstreams/."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path

from compiled.build import shared_object
from kvdrive.xrt import image
from rtl.kernels import ROOT, find_tops
from xrt import axlf

PLATFORM = "xilinx_u2_gen3x4_xdma_gc_2_202110_1"
_PART = "kintexuplus:xcku15p:ffve1517:-2-e"
_CONTROL = ("ap_ctrl", "gie", "ier", "isr", "ap_return", "bus_error")  # registers that are no arguments
_FIRST_UNIT, _UNIT_BYTES = 0x1800000, 0x10000
_SIMULATION = "behav_waveform/xsim"  # where XRT looks for the simulator's script
DESIGN, KERNELS = "design.xml", "kernels.so"  # beside it
_BANK = axlf.Bank("bank0", 0, 4 << 30)


def kernels_library(*tops: str) -> Path:
    """A shared object with these tops, compiled from the HLS sources. Raises compiled.build.BuildError."""
    sources = (top.source.stem for name in tops for top in find_tops(name))
    return shared_object(list(dict.fromkeys(sources)))


def describe(tops: list[str], units: int = 1, platform: str = PLATFORM) -> axlf.Image:
    """An image with `units` compute units of each top."""
    kernels, clock = [], 300
    for top in tops:
        manifest = json.loads((ROOT / f"bitstreams/{top}.json").read_text())
        clock = round(manifest["clock_mhz"])
        first = _FIRST_UNIT + _UNIT_BYTES * units * len(kernels)
        instances = tuple((f"{top}_{number + 1}", first + _UNIT_BYTES * number) for number in range(units))
        kernels.append(axlf.Kernel(top, _arguments(manifest), instances))
    return axlf.Image(platform, _PART, clock, (_BANK,), tuple(kernels))


def write_image(path: Path, tops: list[str], units: int, mode: str, platform: str = PLATFORM) -> None:
    """An image with the compiled kernels `tops`, and its text. Raises compiled.build.BuildError."""
    described = describe(tops, units, platform)
    library = kernels_library(*tops).read_bytes()
    path.write_bytes(axlf.write(described, mode, _simulation(described, library) if mode == "hw_emu" else library))
    names = [(kernel.name, name) for kernel in described.kernels for name, _ in kernel.instances]
    image.write_text(path, platform, names, 0, described.clock_mhz)


def _simulation(image: axlf.Image, library: bytes) -> bytes:
    """The archive that XRT unpacks in hw_emu, with the script that it starts instead of the vendor's simulator."""
    script = (
        "#!/bin/sh\n"
        "unset LD_LIBRARY_PATH\n"
        f'KVDRIVE_CARD_DESIGN="$PWD" PYTHONPATH={ROOT / "sim"} exec {sys.executable} -m xrt.device\n'
    )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        program = zipfile.ZipInfo(f"{_SIMULATION}/simulate.sh")
        program.external_attr = 0o755 << 16
        files.writestr(program, script)
        files.writestr(f"{_SIMULATION}/{DESIGN}", axlf.description(image, "hw_emu"))
        files.writestr(f"{_SIMULATION}/{KERNELS}", library)
    return archive.getvalue()


def _arguments(manifest: dict[str, object]) -> tuple[axlf.Argument, ...]:
    registers = manifest["registers"]["registers"]  # type: ignore[index]
    ports = sorted({name.split("_")[2] for port in manifest["ports"] if (name := port["name"]).startswith("m_axi_")})  # type: ignore[attr-defined]
    arguments = []
    for register in registers:
        if register["name"] in _CONTROL:
            continue
        pointer = len(arguments) < len(ports)  # a kernel's pointers come first, one port each
        size = register["width"] // 8
        kind = "void*" if pointer else "unsigned long" if size == 8 else "unsigned int"
        port = f"M_AXI_{ports[len(arguments)].upper()}" if pointer else ""
        arguments.append(axlf.Argument(register["name"], kind, register["offset"], size, port))
    return tuple(arguments)
