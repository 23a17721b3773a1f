# SPDX-License-Identifier: Apache-2.0
"""The vendor's own peer-to-peer example runs on the emulated card: a program that nobody wrote for it.

It is not part of this project. KVDRIVE_VITIS_EXAMPLES names a copy of github.com/Xilinx/Vitis_Accel_Examples; host
program and kernel are compiled from it, as they are, into the folder of the test.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from emulated_cards import Cards

from csim.ap_headers import ap_headers
from xrt import axlf
from xrt.images import PLATFORM

VARIABLE = "KVDRIVE_VITIS_EXAMPLES"
EXAMPLE = "host_xrt/p2p_simple_xrt"
INTEGERS, ADDED = 4096, 25  # 15 and the increment of 10

ADDER = axlf.Kernel(
    "adder",
    (
        axlf.Argument("in", "unsigned int*", 0x10, 8, "M_AXI_GMEM"),
        axlf.Argument("out", "unsigned int*", 0x1C, 8, "M_AXI_GMEM"),
        axlf.Argument("inc", "int", 0x28, 4),
        axlf.Argument("size", "int", 0x30, 4),
    ),
    (("adder_1", 0x1800000),),
)


@pytest.fixture
def examples() -> Path:
    named = os.environ.get(VARIABLE)
    if not named or not (Path(named) / EXAMPLE).is_dir():
        pytest.skip(f"{VARIABLE} names no copy of Vitis_Accel_Examples")
    return Path(named)


@pytest.mark.slow
def test_the_peer_to_peer_example_passes(cards: Callable[..., Cards], examples: Path) -> None:
    made = cards()
    includes = examples / "common/includes"
    parser = includes / "cmdparser"
    host, kernel = made.folder / "p2p_simple", made.folder / "adder.so"
    xrt = os.environ.get("XRT_HEADERS", "/usr/include/xrt")
    sources = [examples / EXAMPLE / "src/host.cpp", parser / "cmdlineparser.cpp", includes / "logger/logger.cpp"]
    folders = [f"-I{folder}" for folder in (parser, includes / "logger", xrt)]
    libraries = ["-lxrt_coreutil", "-luuid", "-pthread"]
    subprocess.run(["g++", "-std=c++17", "-w", *sources, *folders, *libraries, "-o", host], check=True)
    adder = examples / EXAMPLE / "src/adder.cpp"
    subprocess.run(["g++", "-shared", "-fPIC", "-w", f"-I{ap_headers()}", adder, "-o", kernel], check=True)
    bank = axlf.Bank("bank0", 0, 4 << 30)
    image = axlf.Image(PLATFORM, "kintexuplus:xcku15p:ffve1517:-2-e", 300, (bank,), (ADDER,))
    path = made.folder / "adder.xclbin"
    path.write_bytes(axlf.write(image, "sw_emu", kernel.read_bytes()))
    disk = made.folder / "disk"
    disk.write_bytes(bytes(4 * INTEGERS))
    done = made.run(host, "-x", path, "-p", disk)
    assert "TEST PASSED" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
    assert (np.fromfile(disk, np.uint32) == ADDED).all()  # the card's memory went to the file
