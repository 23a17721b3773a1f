# SPDX-License-Identifier: Apache-2.0
"""The tops of hls/*/kernel.toml: which C++ file holds which top, its clock, loops and cycle formula."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openhls.errors import OpenHlsError

ROOT = Path(__file__).resolve().parents[2]
HLS = ROOT / "hls"


@dataclass(frozen=True)
class Top:
    """One top function in `source`; `sources`: all files of the kernel. Cycles: `formula` of the scalars + `fill`."""

    kernel: str
    name: str
    source: Path
    sources: tuple[Path, ...]
    description: Path
    part: str
    clock_mhz: float
    interfaces: tuple[dict[str, Any], ...] = field(hash=False)
    formula: str
    fill: int

    def cycles(self, variables: dict[str, int]) -> int:
        """Formula and fill for the values of the formula's variables."""
        return int(eval(self.formula, {"__builtins__": {"max": max, "min": min}}, dict(variables))) + self.fill


def all_tops() -> list[Top]:
    """Every top, in the order of the folders."""
    return [top for path in sorted(HLS.glob("*/kernel.toml")) for top in _tops(path)]


def find_tops(name: str = "") -> list[Top]:
    """The tops of a kernel, or one top by its own name; all without a name. Raises OpenHlsError for an unknown one."""
    tops = all_tops()
    found = [top for top in tops if name in ("", top.kernel, top.name)]
    if not found:
        known = dict.fromkeys(name for top in tops for name in (top.kernel, top.name))
        raise OpenHlsError(f"no kernel or top is called {name}: choose one of {', '.join(known)}")
    return found


def _tops(path: Path) -> list[Top]:
    text = tomllib.loads(path.read_text())
    kernel = text["kernel"]
    sources = tuple(path.parent / source for source in kernel["sources"])
    by_name = {source.stem: source for source in sources}
    return [
        Top(
            kernel=kernel["name"],
            name=name,
            source=by_name.get(name, sources[0]),  # the file named after the top, or the one file for all tops
            sources=sources,
            description=path,
            part=kernel["part"],
            clock_mhz=float(kernel["clock_mhz"]),
            interfaces=tuple(text["interface"]),
            formula=" ".join(text["cycles"]["formula"].split()),
            fill=text["cycles"].get("fill", 0),
        )
        for name in kernel.get("tops", [kernel["top"]])
    ]
