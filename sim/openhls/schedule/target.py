# SPDX-License-Identifier: Apache-2.0
"""What a design is compiled for: a device, described by a file in openhls/platforms, and a clock."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openhls.errors import OpenHlsError
from openhls.schedule.delays import Delays

PLATFORMS = Path(__file__).resolve().parents[1] / "platforms"
DEFAULT = "ultrascale-plus"


@dataclass(frozen=True)
class Target:
    """A device at a clock. `around_dsp`: a multiplication registers its operands first, then the product; otherwise
    all registers are behind the product, and synthesis moves them into the multiplier. `ultra_ram`: there are blocks
    of 288 Kbit.
    """

    platform: str
    clock_mhz: float
    delays: Delays
    around_dsp: bool = False
    ultra_ram: bool = True

    @property
    def budget(self) -> float:
        """Nanoseconds of logic in a step."""
        return self.delays.budget(self.clock_mhz)


def platform_names() -> list[str]:
    return sorted(path.stem for path in PLATFORMS.glob("*.toml"))


@functools.cache
def description(platform: str) -> dict[str, Any]:
    """The file of a platform. Raises OpenHlsError for an unknown one."""
    path = PLATFORMS / f"{platform}.toml"
    if not path.exists():
        raise OpenHlsError(f"no platform is called {platform}: choose one of {', '.join(platform_names())}")
    return tomllib.loads(path.read_text())


def target_of(clock_mhz: float | None = None, platform: str = DEFAULT) -> Target:
    """A platform at a clock, or at the clock that its file states. Raises OpenHlsError for an unknown platform."""
    found = description(platform)
    hardware = found["hardware"]
    delays = Delays(**found["delays"], dsp=tuple(sorted(hardware["dsp"], reverse=True)))
    around = hardware["dsp_registers"] == "around"
    return Target(platform, float(clock_mhz or found["clock_mhz"]), delays, around, hardware["ultra_ram"])
