# SPDX-License-Identifier: Apache-2.0
"""The boards."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    """`shell`: the Vitis platform, "" where the kernel becomes an IP of a Vivado design. `memory`: the bank of all
    memory ports in the terms of `sp=`. `package`: what `export` makes. `luts`: about what the platform leaves; compute
    units share them. Sources are in docs/results/hardware.md; `platforminfo -p` says the exact figures."""

    name: str
    part: str
    clock_mhz: float
    shell: str
    memory: str
    package: str
    luts: int = 0

    @property
    def flow(self) -> str:
        """The flow target of Vitis HLS."""
        return "vitis" if self.shell else "vivado"

    @property
    def period_ns(self) -> str:
        return f"{1000 / self.clock_mhz:.3f}"


PLATFORMS = {
    platform.name: platform
    for platform in (
        # 4 GB of DDR4-2400 in one bank, 19.2 GB/s. Vitis 2021.2 is the last version that supports this card.
        Platform(
            "smartssd", "xcku15p-ffva1156-2LV-e", 300.0, "xilinx_u2_gen3x4_xdma_gc_2_202110_1", "bank0", "xo", 330_000
        ),
        # Alveo U50: 8 GB of HBM. Sixteen of its 32 channels together are one bank of 4 GB.
        Platform("u50", "xcu50-fsvh2104-2-e", 300.0, "xilinx_u50_gen3x16_xdma_5_202210_1", "HBM[0:15]", "xo", 730_000),
        # ZCU104: Zynq UltraScale+ with XRT's driver for embedded boards (zocl); memory is the processing system's DDR4.
        Platform("zcu104", "xczu7ev-ffvc1156-2-e", 200.0, "xilinx_zcu104_base_202110_1", "HP0", "xo", 200_000),
        # DaisyPlus OpenSSD: the kernel's masters go to the DDR4 of the processing system.
        Platform("zu17eg", "xczu17eg-ffvc1760-2-e", 285.0, "", "", "ip_catalog"),
    )
}
