"""Write the results of `kvdrive eval` into docs/eval.md and docs/groups.md, with their pictures."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from kvdrive.eval import report
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

PICTURES = {("sweep", "eval.md"): "eval.png", ("quality", "groups.md"): "groups.png"}  # block and page: file in docs


def sweep_block(found: dict) -> str:
    """One line per policy, ratio and format, and a sentence about the questions."""
    header, *lines = report.rows(report.points_of(found))
    table = [header, ["---:", "---", *["---:"] * (len(header) - 2)], *lines]
    note = (
        f"Model {found['model']} in {found['dtype']}, engine `{found['engine']}`, software drive; {found['windows']} "
        f"windows of {found['targets']} tokens, {found['cases']} cases per task, seed {found['seed']}; bytes per "
        "decode step, all layers and heads. `±`: standard error over windows. Tasks: whole answers (95 % interval) / "
        "their tokens."
    )
    return "\n".join("| " + " | ".join(line) + " |" for line in table) + "\n\n" + note


def main() -> int:
    """Exit status 1 without results; blocks without results stay as they are."""
    found = {name: folder for name, folder in SOURCES.items() if (folder / "eval.json").exists()}
    if not found:
        print("no results in out: run the kvdrive eval of docs/eval.md first", file=sys.stderr)
        return 1
    for (name, page), folder in found.items():
        block = sweep_block(json.loads((folder / "eval.json").read_text()))
        if picture := PICTURES.get((name, page)):
            shutil.copy(folder / "eval.png", ROOT / "docs" / picture)
            block += f"\n\n![perplexity, KL and accuracy against bytes read]({picture})"
        write_blocks(ROOT / "docs" / page, {name: block})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
