"""Write the results of `kvdrive eval` into docs/eval.md, docs/groups.md and README.md, with their pictures."""

from __future__ import annotations

import json
import shutil
import sys
from operator import attrgetter
from pathlib import Path

import numpy as np

from kvdrive.eval import report
from kvdrive.eval.points import Point
from page_blocks import write_blocks

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {  # block and page: results
    ("sweep", "eval.md"): ROOT / "out/eval",
    ("smollm2", "eval.md"): ROOT / "out/eval-smollm2",
    ("smollm2-4096", "eval.md"): ROOT / "out/eval-smollm2-4096",
    ("formats", "eval.md"): ROOT / "out/eval-formats",
    ("quality", "groups.md"): ROOT / "out/eval-groups",
    ("quality-8064", "groups.md"): ROOT / "out/eval-groups-8064",
    ("limits", "groups.md"): ROOT / "out/eval-unread",
    ("units", "groups.md"): ROOT / "out/eval-units",
    ("auto", "groups.md"): ROOT / "out/eval-auto",
    ("auto-mini", "groups.md"): ROOT / "out/eval-auto-mini",
    ("mini", "groups.md"): ROOT / "out/eval-groups-mini",
}

PICTURES = {("sweep", "eval.md"): "eval.png", ("quality", "groups.md"): "groups.png"}  # block and page: file in docs


def results_of(folder: Path) -> dict | None:
    """The results in a folder; None without any."""
    file = folder / "eval.json"
    return json.loads(file.read_text()) if file.exists() else None


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
    block = "\n".join("| " + " | ".join(line) + " |" for line in table) + "\n\n" + note
    return "\n\n".join([block, *limits_at_equal_bytes(report.points_of(found))])


def limits_at_equal_bytes(points: list[Point]) -> list[str]:
    """A table that compares limits of what is left unread with fixed shares; empty unless there are both.

    KL of the fixed shares is interpolated at the same bytes: its logarithm over the logarithm of the bytes.
    """
    groups = [point for point in points if point.policy == "groups" and point.kl]
    limited = [point for point in groups if "unread" in point.ratio]
    fixed = sorted((point for point in groups if "," not in point.ratio), key=attrgetter("bytes_read"))
    if not limited or len(fixed) < 2:
        return []
    lines = ["| limit | KL to exact | KL of a fixed share of the same bytes |", "| --- | ---: | ---: |"]
    for point in limited:
        inside = fixed[0].bytes_read <= point.bytes_read <= fixed[-1].bytes_read
        bytes_read, kl = (np.log([getattr(one, name) for one in fixed]) for name in ("bytes_read", "kl"))
        same = f"{np.exp(np.interp(np.log(point.bytes_read), bytes_read, kl)):.4f}" if inside else "outside"
        lines.append(f"| {point.ratio} | {point.kl:.4f} | {same} |")
    return ["\n".join(lines)]


def gain(found: dict) -> str:
    """What the README says of policy groups, from the results on SmolLM2 at one context."""
    at = {(p.policy, p.ratio): p for p in report.points_of(found) if p.kv_format == "f16"}
    exact, groups, sparf = at["exact", "1"], at["groups", "1/8"], at["sparf", "1/8"]
    share, sparf_share = (point.bytes_read / exact.bytes_read for point in (groups, sparf))
    return (
        f"On SmolLM2 at {groups.context:,} tokens, `groups` at 1/8 reads {share:.0%} of the bytes that exact attention "
        f"reads, for {groups.added_nats:+.3f} ± {groups.added_error:.3f} nats a token (perplexity "
        f"{groups.perplexity:.2f}, exact {exact.perplexity:.2f}). SparF at 1/8 reads {sparf_share:.0%}, for "
        f"{sparf.added_nats:+.3f} ± {sparf.added_error:.3f}. Of {found['cases'] * len(exact.accuracy)} questions about "
        f"numbers hidden in the text, exact attention answers {right(exact, found)}, `groups` {right(groups, found)} "
        f"and SparF {right(sparf, found)}."
    )


def right(point: Point, found: dict) -> int:
    """Retrieval questions of all tasks that were answered."""
    return round(found["cases"] * sum(point.accuracy.values()))


def main() -> int:
    """Exit status 1 without results; blocks without results stay as they are."""
    found = {place: (folder, results) for place, folder in SOURCES.items() if (results := results_of(folder))}
    if not found:
        print("no results in out: run the kvdrive eval of docs/eval.md first", file=sys.stderr)
        return 1
    for (name, page), (folder, results) in found.items():
        block = sweep_block(results)
        if picture := PICTURES.get((name, page)):
            if (folder / "eval.png").exists():
                shutil.copy(folder / "eval.png", ROOT / "docs" / picture)
            block += f"\n\n![perplexity, KL and accuracy against bytes read]({picture})"
        write_blocks(ROOT / "docs" / page, {name: block})
        if name == "quality":
            write_blocks(ROOT / "README.md", {"gain": gain(results)})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
