"""Write the results of `kvdrive eval` into docs/eval.md, with the picture beside it, and into docs/groups.md."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from page_blocks import write_blocks

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {  # block and page: results
    ("sweep", "eval.md"): ROOT / "out/eval",
    ("smollm2", "eval.md"): ROOT / "out/eval-smollm2",
    ("formats", "eval.md"): ROOT / "out/eval-formats",
    ("formats-smollm2", "eval.md"): ROOT / "out/eval-formats-smollm2",
    ("quality", "groups.md"): ROOT / "out/eval-groups",
    ("mini", "groups.md"): ROOT / "out/eval-groups-mini",
}


def sweep_block(found: dict) -> str:
    """One line per policy and ratio, and a sentence about the questions."""
    points = found["points"]
    plain = [point for point in points if point.get("kv_format", "f16") == "f16"]
    exact = {point["context"]: point["bytes_read"] for point in plain if point["policy"] == "exact"}
    crossed = len(plain) < len(points)  # the column of formats is left out where there is one
    tasks = list(points[0]["accuracy"])
    lines = [
        [
            "context",
            "policy",
            "ratio",
            *["format"] * crossed,
            "KiB read",
            "of exact",
            "KiB needed",
            "perplexity",
            *tasks,
        ]
    ]
    lines += [["---:", "---", *["---:"] * (len(lines[0]) - 2)]]
    for point in points:
        read = point["bytes_read"]
        share = f"{read / exact[point['context']]:.2f}" if point["context"] in exact else "-"
        answers = [
            f"{100 * point['accuracy'][task]:.0f} / {100 * point['token_accuracy'][task]:.0f} %" for task in tasks
        ]
        lines.append([
            f"{point['context']:,}", point["policy"], point["ratio"], *[point.get("kv_format")] * crossed,
            f"{read / 1024:,.0f}", share,
            f"{point['bytes_needed'] / 1024:,.0f}", f"{point['perplexity']:.2f}", *answers,
        ])  # fmt: skip
    note = (
        f"Model {found['model']} in {found['dtype']}, engine `{found['engine']}`, software drive; {found['windows']} "
        f"windows of {found['targets']} tokens, {found['cases']} cases per task, seed {found['seed']}; bytes per "
        "decode step, all layers and heads; tasks: whole answers / their tokens. `h2o`: kept rows in host memory."
    )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n\n" + note


def main() -> int:
    """Exit status 1 without results; blocks without results stay as they are."""
    found = {name: folder for name, folder in SOURCES.items() if (folder / "eval.json").exists()}
    if not found:
        print("no results in out: run the kvdrive eval of docs/eval.md first", file=sys.stderr)
        return 1
    for (name, page), folder in found.items():
        write_blocks(ROOT / "docs" / page, {name: sweep_block(json.loads((folder / "eval.json").read_text()))})
    if ("sweep", "eval.md") in found:
        shutil.copy(SOURCES["sweep", "eval.md"] / "eval.png", ROOT / "docs/eval.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
