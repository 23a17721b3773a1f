"""Write the measured table of README.md from the JSON that `make bench-attention` leaves in out/."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "out/bench_attention.json"
BEGIN, END = "<!-- bench-attention -->", "<!-- end -->"


def table(bench: dict) -> str:
    """One line per contender, one column per (g, threads): GB/s of K and V, and how many times faster `fast` is."""
    streaming = [row for row in bench["rows"] if row["contender"] != "hls"]
    columns = sorted({(row["shape"]["g"], row["threads"]) for row in streaming})
    cells: dict[str, dict[tuple[int, int], str]] = {}
    for row in streaming:
        ratio = row["slower_than_fast"]
        text = f"{row['gb_per_s']:.3g}" + ("" if row["contender"] == "fast" else f" ({ratio:.3g}x)")
        cells.setdefault(row["contender"], {})[row["shape"]["g"], row["threads"]] = text
    shape, machine = streaming[0]["shape"], bench["machine"]
    head = ["GB/s of K and V", *(f"g = {g}, {n} thread{'s' if n > 1 else ''}" for g, n in columns)]
    lines = [head, ["---"] + ["---:"] * len(columns)]
    lines += [[name, *(by.get(column, "-") for column in columns)] for name, by in cells.items()]
    slow = [row for row in bench["rows"] if row["contender"] == "hls"]
    compiled = ", ".join(f"{row['gb_per_s']:.2g} GB/s at g = {row['shape']['g']}" for row in slow)
    where = f"{machine['processor']}, {machine['cpus']} shared cores, {machine['isa']}, torch {bench['torch']}"
    note = (
        f"Measured on {where}; s = {shape['s']}, d = {shape['d']}, {shape['heads']} KV heads streamed from memory. "
        "In brackets: `fast` over the contender, median of the rounds' ratios; for the memory read that is the share"
        " of the bandwidth. The compiled kernels (`hls`, "
        f"s = {slow[0]['shape']['s']}): {compiled}."
    )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n\n" + note


def main() -> int:
    if not SOURCE.exists():
        print("out/bench_attention.json is missing: run `make bench-attention` first", file=sys.stderr)
        return 1
    readme = ROOT / "README.md"
    block = f"{BEGIN}\n{table(json.loads(SOURCE.read_text()))}\n{END}"
    text, count = re.subn(f"{BEGIN}.*?{END}", lambda _: block, readme.read_text(), flags=re.S)
    if count != 1:
        print(f"README.md has no block {BEGIN} ... {END}", file=sys.stderr)
        return 1
    readme.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
