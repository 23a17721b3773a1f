# SPDX-License-Identifier: Apache-2.0
"""Delays and longest paths of a routed design, from the SDF file of nextpnr, beside those that openhls expected.

A path begins at the clock edge of a register or memory and ends at a pin that has a set-up time. It counts for the
process in which it ends.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from pnr.harness import KERNEL

_WORST = r"\([\d.-]*:[\d.-]*:([\d.-]+)\)"
_INTERCONNECT = re.compile(rf"\(INTERCONNECT (\S+)/(\w+) (\S+)/(\w+) {_WORST} {_WORST}\)")
_IOPATH = re.compile(rf"\(IOPATH (?:\(\w+ )?(\w+)\)? (\w+) {_WORST} {_WORST}\)")
_SETUP = re.compile(rf"\(SETUPHOLD \(\w+ (\w+)\) \(\w+ (\w+)\) {_WORST}")
_CLOCKS = re.compile(r"W?CK|CLK[0-3]?[AB]?")

Pin = tuple[str, str]


@dataclass
class Timing:
    """Nanoseconds: `nets` from output to input pin, `cells` from input to output pin, `ends` set-up times."""

    kinds: dict[str, str] = field(default_factory=dict)
    nets: dict[Pin, list[tuple[Pin, float]]] = field(default_factory=lambda: defaultdict(list))
    cells: dict[Pin, list[tuple[Pin, float]]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[Pin, float] = field(default_factory=dict)


def read_sdf(path: Path) -> Timing:
    found = Timing()
    kind = name = ""
    with path.open() as lines:
        for line in lines:
            text = line.strip()
            if text.startswith("(INTERCONNECT"):
                if arc := _INTERCONNECT.match(text):
                    delay = max(float(arc[5]), float(arc[6])) / 1000
                    found.nets[arc[1], arc[2]].append(((arc[3], arc[4]), delay))
            elif text.startswith("(CELLTYPE"):
                kind = text.split('"')[1]
            elif text.startswith("(INSTANCE"):
                name = text.removeprefix("(INSTANCE").strip().rstrip(")").strip()
                found.kinds[name] = kind
            elif text.startswith("(IOPATH"):
                if arc := _IOPATH.match(text):
                    delay = max(float(arc[3]), float(arc[4])) / 1000
                    found.cells[name, arc[1]].append(((name, arc[2]), delay))
            elif text.startswith("(SETUPHOLD") and (arc := _SETUP.match(text)):
                pin = name, arc[1]
                found.ends[pin] = max(found.ends.get(pin, 0.0), float(arc[3]) / 1000)
    return found


def arrivals(timing: Timing) -> dict[Pin, float]:
    """When the last signal of a path is at each pin, in nanoseconds after the clock edge."""
    arcs: dict[Pin, list[tuple[Pin, float]]] = defaultdict(list)
    waits: dict[Pin, int] = defaultdict(int)
    for group in (timing.nets, timing.cells):
        for start, targets in group.items():
            for end, delay in targets:
                if not _CLOCKS.fullmatch(end[1]):
                    arcs[start].append((end, delay))
                    waits[end] += 1
    at = {pin: 0.0 for pin in timing.cells if _CLOCKS.fullmatch(pin[1])}
    ready = [pin for pin in arcs if waits[pin] == 0]
    while ready:
        pin = ready.pop()
        for end, delay in arcs[pin]:
            if pin in at:
                at[end] = max(at.get(end, 0.0), at[pin] + delay)
            waits[end] -= 1
            if waits[end] == 0:
                ready.append(end)
    return at


def process_of(cell: str, top: str) -> str:
    """The process in which a cell lies, "" for the harness: instances are called dut.process.A_run.B_run.x."""
    parts = cell.replace("\\", "").split(".")
    if parts[0] != KERNEL:
        return ""
    runs = [part.removesuffix("_run") for part in parts[:-1] if part.endswith("_run")]
    return runs[-1] if runs else top


def longest_paths(timing: Timing, top: str) -> dict[str, float]:
    """Nanoseconds of the longest path that ends in each process, set-up time included."""
    found: dict[str, float] = {}
    at = arrivals(timing)
    for pin, setup in timing.ends.items():
        if pin in at and (process := process_of(pin[0], top)):
            found[process] = max(found.get(process, 0.0), at[pin] + setup)
    return found


@dataclass(frozen=True)
class Entry:
    """An entry of the table of delays: arcs through cells of some kinds, with the nets behind them or without."""

    name: str
    kinds: tuple[str, ...]
    start: str
    end: str
    net: bool


_ENTRIES = (
    Entry("clock_to_q", ("TRELLIS_FF", "DFF.*"), _CLOCKS.pattern, "Q", True),
    Entry("level", ("TRELLIS_COMB", "LUT[1-4]"), "[ABCD]|I[0-3]", "F", True),
    Entry("carry_bit", ("TRELLIS_COMB", "ALU"), "FCI|CIN", "FCO|COUT", False),
    Entry("ram_data", ("P?DP.*16KD", "BSRAM.*", "S?D?PX?9?B?"), _CLOCKS.pattern, "DO.*", True),
)


def delays_of(timing: Timing, entry: Entry) -> list[float]:
    """What the router found for an entry."""
    kinds, start, end = (re.compile(text) for text in ("|".join(entry.kinds), entry.start, entry.end))
    found = []
    for (cell, pin), targets in timing.cells.items():
        if start.fullmatch(pin) and kinds.fullmatch(timing.kinds[cell]):
            for out, delay in targets:
                if end.fullmatch(out[1]):
                    behind = [net for _, net in timing.nets.get(out, [])] if entry.net else [0.0]
                    found += [delay + net for net in behind]
    return found


def compared(timing: Timing, table: dict[str, float]) -> dict[str, dict[str, float]]:
    """Per entry: nanoseconds in the table, and the mean and the 90th percentile of what was routed."""
    found = {}
    for entry in _ENTRIES:
        values = delays_of(timing, entry)
        if len(values) > 1:
            mean, high = sum(values) / len(values), quantiles(values, n=10)[-1]
            found[entry.name] = {"table": table[entry.name], "mean": round(mean, 2), "p90": round(high, 2)}
    return found
