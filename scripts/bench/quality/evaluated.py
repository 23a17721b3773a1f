"""Quality against bytes read, by `kvdrive eval`: a table for each evaluation. Each goes on where it was stopped."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import numpy as np

from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.errors import InputError
from kvdrive.eval import report
from kvdrive.eval.points import Point
from kvdrive.tree import ROOT

OUT = ROOT / "out"
GROUPS = "--model smollm2 --policies exact,groups,sparf --ratios 1/8,1/16 --kv-formats f16,int8,int4 --windows 4"
EVALUATIONS = {  # options of kvdrive eval
    "sweep": "--policies all --ratios 1,1/2,1/4,1/8,1/16 --contexts 2048 --windows 4 --targets 32 --cases 5",
    "smollm2": "--model smollm2 --policies exact,sparf,local --ratios 1/8 --contexts 4096,8064 --windows 2 "
    "--targets 32 --cases 5",
    "smollm2-4096": "--model smollm2 --policies all --ratios 1/8,1/16 --contexts 4096 --windows 2 --targets 32 "
    "--cases 5",
    "formats": "--policies exact,local --ratios 1/2,1/4 --kv-formats f16,int8,int4,fp8 --contexts 2048 --windows 4 "
    "--targets 32 --cases 5",
    "groups": f"{GROUPS} --targets 64 --cases 5 --contexts 4096",
    "groups-8064": f"{GROUPS} --targets 64 --cases 5 --contexts 8064",  # SmolLM2 has 8,192 positions
    "groups-mini": "--policies exact,groups,sparf --ratios 1/4,1/8,1/16 --contexts 2048 --windows 4 --targets 32 "
    "--cases 5",
    "auto": "--model smollm2 --policies exact,groups,auto:0.01,auto:0.02 --ratios 1/4,1/8,1/16 --contexts 4096 "
    "--windows 4 --targets 64 --cases 0",
    "auto-mini": "--policies exact,groups,auto:0.01,auto:0.02 --ratios 1/2,1/4,1/8,1/16 --contexts 2048 --windows 4 "
    "--targets 32 --cases 0",
    "limits": "--model smollm2 --policies exact,groups --ratios 1/2,1/4,1/8,1/16 --unread-limits 0.5,0.3,0.2,0.1,0.05 "
    "--contexts 2048 --windows 4 --targets 64 --cases 0",
    "units": "--model smollm2 --policies exact,groups --ratios 1/8 --units 64,128 --kv-formats f16,int8,int4 "
    "--contexts 4096 --windows 4 --targets 64 --cases 0",
}
CALIBRATIONS = {  # options of kvdrive calibrate, before the evaluation
    "auto": "--model smollm2 --kl 0.01,0.02 --context 4096 --target cpu",
    "auto-mini": "--kl 0.01,0.02 --context 2048",
}
QUICK = "--policies exact,groups --ratios 1/8 --contexts 192 --windows 1 --targets 2 --cases 0"
PICTURES = {"sweep": "eval.png", "groups": "groups.png"}  # in docs/results


def run(setup: Setup, part: str) -> list[Block]:
    """One of EVALUATIONS; of `groups` also what README.md says."""
    if setup.quick:
        with setup.folder() as folder:
            return blocks(part, evaluate(QUICK, folder))
    if part in CALIBRATIONS:
        command("calibrate", CALIBRATIONS[part])
    folder = OUT / f"eval-{part}"
    found = evaluate(f"{EVALUATIONS[part]} --resume", folder)
    if part in PICTURES:
        shutil.copy(folder / "eval.png", ROOT / "docs/results" / PICTURES[part])
    return blocks(part, found)


def command(name: str, options: str, *more: str) -> None:
    """A command of kvdrive. Raises InputError where it fails; what it says is on the terminal."""
    if subprocess.run([sys.executable, "-m", "kvdrive", name, *options.split(), *more], stdout=sys.stderr).returncode:
        raise InputError(f"kvdrive {name} {options} failed: see above")


def evaluate(options: str, folder: Path) -> dict:
    """The results of kvdrive eval."""
    command("eval", options, "--report", str(folder))
    found: dict = json.loads((folder / "eval.json").read_text())
    return found


def blocks(part: str, found: dict) -> list[Block]:
    """A row per policy, ratio and format."""
    points = report.points_of(found)
    header, *rows = report.rows(points)
    note = (
        f"Model {found['model']} in {found['dtype']}, engine `{found['engine']}`, software drive; {found['windows']} "
        f"windows of {found['targets']} tokens, {found['cases']} cases per task, seed {found['seed']}; bytes per "
        "decode step, all layers and heads. `±`: standard error over windows. Tasks: whole answers (95 % interval) / "
        "their tokens."
    )
    if part in PICTURES:
        note += f"\n\n![perplexity, KL and accuracy against bytes read]({PICTURES[part]})"
    table = Table(header, rows, note, align="rl" + "r" * (len(header) - 2))
    own = [Block(part, [table, *limits_at_equal_bytes(points)], found)]
    return own + ([Block("gain", [Table(note=gain(found))])] if found["cases"] and part == "groups" else [])


def limits_at_equal_bytes(points: list[Point]) -> list[Table]:
    """A table that compares limits of what is left unread with fixed shares; empty unless there are both.

    KL of the fixed shares is interpolated at the same bytes: its logarithm over the logarithm of the bytes.
    """
    groups = [point for point in points if point.policy == "groups" and point.kl]
    limited = [point for point in groups if "unread" in point.ratio]
    fixed = sorted((point for point in groups if "," not in point.ratio), key=attrgetter("bytes_read"))
    if not limited or len(fixed) < 2:
        return []
    rows = []
    for point in limited:
        inside = fixed[0].bytes_read <= point.bytes_read <= fixed[-1].bytes_read
        bytes_read, kl = (np.log([getattr(one, name) for one in fixed]) for name in ("bytes_read", "kl"))
        same = f"{np.exp(np.interp(np.log(point.bytes_read), bytes_read, kl)):.4f}" if inside else "outside"
        rows.append([point.ratio, f"{point.kl:.4f}", same])
    return [Table(["limit", "KL to exact", "KL of a fixed share of the same bytes"], rows)]


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
