"""Draw docs/gain.svg: tokens a second against the context, from the results of `make bench SUITE=decode`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from bench import results
from kvdrive.tree import ROOT

PICTURE = ROOT / "docs" / "gain.svg"
BLOCK = "decode/steps"
MODEL, ABOUT = "426m", "a Llama of 426M parameters with random weights"
LINES = {
    "transformers sdpa": ("transformers, K and V in memory", "#6b7280"),
    "llama.cpp": ("llama.cpp, K and V in memory", "#b45309"),
    "kvdrive cpu target": ("kvdrive, K and V on the SSD", "#1d4ed8"),
    "kvdrive emulator": ("kvdrive, emulated drive in memory", "#15803d"),
}  # of the columns of the table: what the picture calls them, and their colour
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 380, 64, 250, 48, 72
INK, PAPER, GRID = "#1f2937", "#ffffff", "#e5e7eb"


@dataclass(frozen=True)
class Rates:
    """Tokens a second of each column, by context; machine and date of the measurement."""

    points: dict[str, dict[int, float]]
    where: str

    @property
    def contexts(self) -> list[int]:
        """All contexts, in order."""
        return sorted({context for line in self.points.values() for context in line})


def rates(folder: Path = results.FOLDER) -> Rates:
    """Those of the machine with the most numbers, the last of them. Raises KeyError without any."""
    found = [rates_of(one) for name, one in results.load(folder) if name == BLOCK]
    if not found:
        raise KeyError(f"{folder} has no {BLOCK}")
    return max(found, key=lambda one: (sum(map(len, one.points.values())), one.where[-10:]))


def rates_of(result: results.Result) -> Rates:
    """The numbers of MODEL in a table of milliseconds a step."""
    (table,) = result.block.tables
    points: dict[str, dict[int, float]] = {name: {} for name in LINES if name in table.head}
    for first, *cells in table.rows:
        model, _, context = first.partition(", ")
        if model != MODEL:
            continue
        for name, cell in zip(table.head[1:], cells, strict=True):
            if name in points and (number := re.match(r"[\d,.]+", cell)):
                points[name][int(context.replace(",", ""))] = 1000 / float(number[0].replace(",", ""))
    return Rates(points, f"{result.machine}, {result.date}")


def draw(found: Rates) -> str:
    """The picture as SVG text: both axes are logarithmic."""
    speeds = [speed for line in found.points.values() for speed in line.values()]
    low, high = 2 ** math.floor(math.log2(min(speeds))), 2 ** math.ceil(math.log2(max(speeds)))
    first, last = found.contexts[0], found.contexts[-1]

    def x(context: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(context / first) / math.log2(last / first)

    def y(speed: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log2(speed / low) / math.log2(high / low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}" role="img">',
        "<title>Tokens a second against the context</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>',
        _text(LEFT, 24, f"tokens a second, one sequence of {ABOUT}", bold=True),
    ]
    ticks = [low * 2**step for step in range(round(math.log2(high / low)) + 1)]
    for speed in ticks:
        parts.append(_line([(LEFT, y(speed)), (WIDTH - RIGHT, y(speed))], GRID, 1))
        parts.append(_text(LEFT - 8, y(speed) + 4, f"{speed:g}", "end"))
    for context in found.contexts:
        parts.append(_line([(x(context), TOP), (x(context), HEIGHT - BOTTOM)], GRID, 1))
        parts.append(_text(x(context), HEIGHT - BOTTOM + 20, f"{context:,}", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 40, "tokens of context", "middle"))
    for row, (name, line) in enumerate(sorted(found.points.items(), key=lambda one: min(one[1].values()))[::-1]):
        label, color = LINES[name]
        places = [(x(context), y(speed)) for context, speed in sorted(line.items())]
        parts.append(_line(places, color, 2.5))
        parts += [f'<circle cx="{one:.1f}" cy="{other:.1f}" r="4" fill="{color}"/>' for one, other in places]
        legend = TOP + 20 + 26 * row
        parts.append(_line([(WIDTH - RIGHT + 20, legend - 4), (WIDTH - RIGHT + 44, legend - 4)], color, 2.5))
        parts.append(_text(WIDTH - RIGHT + 50, legend, label))
        missing = [context for context in found.contexts if context not in line]
        if missing:
            parts.append(_text(WIDTH - RIGHT + 50, legend + 13, f"not measured at {missing[0]:,}", size=10))
    parts.append(_text(LEFT, HEIGHT - 12, f"Measured: {found.where}. make bench SUITE=decode", size=11))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, anchor: str = "start", bold: bool = False, size: int = 13) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight}>{escape(text)}</text>'


def _line(places: list[tuple[float, float]], color: str, width: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"/>'


def texts() -> dict[Path, str]:
    """The picture."""
    return {PICTURE: draw(rates())}
