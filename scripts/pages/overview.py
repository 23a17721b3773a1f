"""Draw docs/overview.svg: how a token's attention travels. Every box names the folder of its code, which must exist."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from kvdrive.tree import ROOT

PICTURE = ROOT / "docs" / "overview.svg"
WIDTH, HEIGHT = 940, 392
HOST, DRIVE, FLASH, INK, PAPER = "#dbeafe", "#dcfce7", "#fef3c7", "#1f2937", "#ffffff"


@dataclass(frozen=True)
class Box:
    """A box of the picture. `folder` holds its code; "" for parts outside this project."""

    x: int
    y: int
    width: int
    title: str
    lines: tuple[str, ...]
    folder: str
    color: str

    @property
    def height(self) -> int:
        return 30 + 17 * (len(self.lines) + bool(self.folder))


BOXES = (
    Box(24, 56, 190, "transformers model", ("dense layers, prefill", "on CPU or GPU"), "", PAPER),
    Box(24, 150, 190, "plug-in", ("attention and cache", "by transformers' names"), "host/kvdrive/plugins", HOST),
    Box(24, 262, 190, "KV cache", ("sequences, pending", "tokens, recovery"), "host/kvdrive/kvcache", HOST),
    Box(268, 150, 190, "targets", ("this process, a socket,", "NVMe/TCP, Linux"), "host/kvdrive/targets", HOST),
    Box(512, 56, 190, "commands", ("append K and V, attend,", "fork, trim, erase"), "sim/drive/commands", DRIVE),
    Box(512, 160, 190, "attention", ("exact and SparF runs", "over pages"), "sim/drive/attention", DRIVE),
    Box(512, 264, 190, "engines", ("fast, hls, rtl:", "the same bits"), "sim/drive/engine", DRIVE),
    Box(740, 56, 176, "sessions, maps", ("groups of tokens,", "journal, checksums"), "sim/drive/ftl", DRIVE),
    Box(740, 160, 176, "flash", ("4 KiB pages in a file,", "modelled device time"), "sim/drive/nand", FLASH),
    Box(740, 264, 176, "kernels", ("Vitis HLS C++, also", "as SystemVerilog"), "hls", DRIVE),
)
# Arrows: from a box, to a box, and the data that pass.
ARROWS = (
    ((119, 124), (119, 150), "", "middle", (0, 0)),
    ((119, 235), (119, 262), "", "middle", (0, 0)),
    ((214, 300), (360, 233), "", "middle", (0, 0)),
    ((458, 180), (510, 110), "64-byte NVMe commands", "middle", (372, 138)),
    ((607, 141), (607, 160), "", "middle", (0, 0)),
    ((607, 245), (607, 264), "", "middle", (0, 0)),
    ((702, 98), (740, 98), "", "middle", (0, 0)),
    ((828, 141), (828, 160), "", "middle", (0, 0)),
    ((740, 200), (704, 200), "", "middle", (0, 0)),
    ((702, 306), (740, 306), "", "middle", (0, 0)),
)


def draw() -> str:
    """The picture as SVG text. Raises FileNotFoundError when a folder is not there."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}" role="img">',
        "<title>How one token's attention travels through kvdrive</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>',
        _frame(12, 474, "host", 12),
        _frame(498, 430, "drive: a file, a process, another machine", 12),
        *(_arrow(*arrow) for arrow in ARROWS),
        *(_box(box) for box in BOXES),
        _text(
            486, 380, "Back to the host: the attention output and a 192-byte record per head, nothing else.", "middle"
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _frame(x: int, width: int, label: str, y: int) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="346" rx="10" fill="none" stroke="#9ca3af" '
        f'stroke-dasharray="5 4"/>\n<text x="{x + 14}" y="{y + 24}" font-weight="bold">{escape(label)}</text>'
    )


def _box(box: Box) -> str:
    if box.folder and not (ROOT / box.folder).is_dir():
        raise FileNotFoundError(f"{box.folder} is not a folder: name the one that holds '{box.title}' today")
    middle = box.x + box.width // 2
    rows = [
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" fill="{box.color}" '
        f'stroke="{INK}"/>',
        f'<text x="{middle}" y="{box.y + 19}" text-anchor="middle" font-weight="bold">{escape(box.title)}</text>',
    ]
    rows += [_text(middle, box.y + 37 + 16 * row, line, "middle") for row, line in enumerate(box.lines)]
    if box.folder:
        y = box.y + 38 + 16 * len(box.lines)
        rows.append(f'<text x="{middle}" y="{y}" text-anchor="middle" font-family="monospace" font-size="11">'
                    f"{escape(box.folder)}/</text>")  # fmt: skip
    return "\n".join(rows)


def _arrow(start: tuple[int, int], end: tuple[int, int], label: str, anchor: str, place: tuple[int, int]) -> str:
    line = (
        f'<line x1="{start[0]}" y1="{start[1]}" x2="{end[0]}" y2="{end[1]}" stroke="{INK}" stroke-width="1.5" '
        'marker-end="url(#tip)"/>'
    )
    return line if not label else line + "\n" + _text(*place, label, anchor)


def _text(x: int, y: int, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def texts() -> dict[Path, str]:
    """The picture."""
    return {PICTURE: draw()}
