# SPDX-License-Identifier: Apache-2.0
"""Sets up emulated cards: a folder with a private copy of the runtime, and the environment of programs that use it."""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from xrt.images import PLATFORM
from xrt.prefix import make_prefix

_MODEL = "data/emulation/unified/cpu_em/generic_pcie/model/genericpciemodel"  # what the shim starts for a card
# For several cards, the runtime's own scheduler. Those of the emulation, one for each card, take commands of other
# cards, which then end without having run; but only they tell of a kernel that hangs.
_SEVERAL = "[Runtime]\nkds_sw_emu=false\nsws=true\n"


@dataclass(frozen=True)
class CardOptions:
    """`kernels`: compiled or rtl. `fault`: see xrt.device. `mode`: sw_emu or hw_emu."""

    cards: int = 1
    kernels: str = "compiled"
    fault: str = ""
    mode: str = "sw_emu"
    platform: str = PLATFORM


def set_up(folder: Path, options: CardOptions) -> dict[str, str]:
    """The environment of programs that shall find these cards. Raises RuntimeMissing."""
    prefix = make_prefix(folder / "xrt")
    vitis = folder / "vitis"
    model = vitis / _MODEL
    model.parent.mkdir(parents=True, exist_ok=True)
    sim = Path(__file__).resolve().parents[1]
    model.write_text(f'#!/bin/sh\nunset LD_LIBRARY_PATH\nPYTHONPATH={sim} exec {sys.executable} -m xrt.device "$@"\n')
    model.chmod(model.stat().st_mode | stat.S_IXUSR)
    (folder / "emconfig.json").write_text(json.dumps(_emulated_platform(options)))
    settings = folder / "xrt.ini"
    settings.write_text(_SEVERAL if options.cards > 1 else "")
    run = folder / "run"
    run.mkdir(exist_ok=True)
    return {
        "XILINX_XRT": str(prefix),
        "XILINX_VITIS": str(vitis),
        "EMCONFIG_PATH": str(folder),
        "XRT_INI_PATH": str(settings),
        "SDACCEL_EM_RUN_DIR": str(run),
        "XCL_EMULATION_MODE": options.mode,
        "USER": os.environ.get("USER", "kvdrive"),
        "KVDRIVE_CARD_KERNELS": options.kernels,
        "KVDRIVE_CARD_FAULT": options.fault,
        "KVDRIVE_CARD_LOG": str(folder / "card.log"),
    }


def _emulated_platform(options: CardOptions) -> dict[str, object]:
    device = {
        "Name": options.platform,
        "HalMajorVersion": "1",
        "HalMinorVersion": "0",
        "VendorId": "4334",
        "SubsystemVendorId": "0",
        "DeviceVersion": "0",
        "DataAlignment": "4096",
        "NumDevices": str(options.cards),
        "DdrBanks": [{"Size": "4GB"}],
        "OclFreqency": "300",  # spelled so
        "FeatureRom": {"Major_Version": "10", "Minor_Version": "1", "Ddr_Channel_Count": "1", "Ddr_Channel_Size": "4"},
    }
    return {
        "Version": {"FileVersion": "2.0", "ToolVersion": "2022.1"},
        "Platform": {
            "Name": options.platform,
            "UnifiedPlatform": "true",
            "ExpandedPR": "true",
            "Boards": [{"NumBoards": "1", "Devices": [device]}],
        },
    }
