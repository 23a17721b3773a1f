# SPDX-License-Identifier: Apache-2.0
"""The boards."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    """`shell`: the Vitis platform, "" where the kernel becomes an IP of a Vivado design. `memory`: the bank of all
    memory ports in the terms of `sp=`. `package`: what `export` makes."""

    name: str
    part: str
    clock_mhz: float
    shell: str
    memory: str
    package: str

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
        Platform("smartssd", "xcku15p-ffva1156-2LV-e", 300.0, "xilinx_u2_gen3x4_xdma_gc_2_202110_1", "bank0", "xo"),
        # DaisyPlus OpenSSD: the kernel's masters go to the DDR4 of the processing system.
        Platform("zu17eg", "xczu17eg-ffvc1760-2-e", 285.0, "", "", "ip_catalog"),
    )
}
