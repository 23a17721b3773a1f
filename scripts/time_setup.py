# SPDX-License-Identifier: Apache-2.0
"""How long a newcomer waits: `make run` to its first text and `make test`, in fresh clones of the last commit.

Three clones: `make run` with empty caches, `make test` with empty caches, and `make test` with the caches that the
second clone left. Downloads of packages are listed apart. Nothing else should run meanwhile. The table goes to
CONTRIBUTING.md, all figures to JSON. It takes half an hour:

    PYTHONPATH=sim:scripts .venv/bin/python scripts/time_setup.py --write
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

from kvdrive.perf.stored_rates import processor
from pages.blocks import write_blocks

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
BLOCK = "time-setup"
TEXT_FOLLOWS = "the model goes on:"  # the line of `kvdrive run` before the first text
STEP = re.compile(r"kvdrive: (?P<title>.*) \.\.\. .*?(?P<seconds>\d+) s$")
PACKAGES = re.compile(r"system packages|Python packages|headers of the vendor's integers|package ")
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")


@dataclass
class Timing:
    """A command in a clone. All times in seconds; `downloads`: the steps that install packages, part of `whole`."""

    command: str
    caches: str
    whole: float = 0.0
    first_text: float | None = None
    steps: dict[str, int] = field(default_factory=dict)
    tests: dict[str, int] = field(default_factory=dict)
    status: int = 0

    @property
    def downloads(self) -> int:
        return sum(seconds for title, seconds in self.steps.items() if PACKAGES.match(title))

    @property
    def waited(self) -> float:
        """Without downloads: to the first text where there is one, else to the end."""
        return (self.whole if self.first_text is None else self.first_text) - self.downloads


def pieces(stream: int) -> Iterator[str]:
    """What a program prints, as soon as it does."""
    while piece := os.read(stream, 1 << 16):
        yield piece.decode(errors="replace")


def first_text_at(text: str) -> bool:
    """True once something of the model's answer is printed."""
    _, found, answer = text.partition(TEXT_FOLLOWS)
    return bool(found) and bool(answer.strip())


def timed(command: str, caches: str, clone: Path, environment: dict[str, str], log: Path) -> Timing:
    """Run a command of the Makefile and note when its first text came, how long its steps took and what was tested."""
    timing = Timing(command, caches)
    begin = time.monotonic()
    said = ""
    with subprocess.Popen(
        command.split(), cwd=clone, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for piece in pieces(process.stdout.fileno()):
            said += piece
            sys.stdout.write(piece)
            sys.stdout.flush()
            if timing.first_text is None and first_text_at(said):
                timing.first_text = time.monotonic() - begin
    timing.whole = time.monotonic() - begin
    timing.status = process.returncode
    log.write_text(said)
    lines = [line.rsplit("\r", 1)[-1] for line in said.split("\n")]
    timing.steps = {found["title"]: int(found["seconds"]) for line in lines if (found := STEP.match(line))}
    for line in lines:
        if re.search(r"\d+ passed.* in [\d.]+s", line):
            timing.tests = {what: int(count) for count, what in COUNTS.findall(line)}
    return timing


def fresh_clone(folder: Path) -> Path:
    """The last commit in a new folder, with a copy of nothing else."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def measured(out: Path) -> list[Timing]:
    """The three timings, also where a command fails. Logs go to `out`."""
    found = []
    with tempfile.TemporaryDirectory(prefix="kvdrive-time-") as place:
        caches = {"empty": Path(place) / "run", "tests": Path(place) / "tests"}
        plan = (("make run", "empty", "empty"), ("make test", "empty", "tests"), ("make test", "warm", "tests"))
        for number, (command, state, cache) in enumerate(plan):
            clone = fresh_clone(Path(place) / f"clone{number}")
            environment = os.environ | {
                "CCACHE_DIR": str(caches[cache] / "ccache"),
                "XDG_CACHE_HOME": str(caches[cache] / "cache"),
            }
            found.append(timed(command, state, clone, environment, out / f"time_setup_{number}.txt"))
            if found[-1].status:
                print(f"{command} with {state} caches failed: see {out / f'time_setup_{number}.txt'}", file=sys.stderr)
    return found


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def selected() -> tuple[int, int]:
    """The tests that `make test` runs, and those that only `make test-full` runs."""
    counts = []
    for marked in ("not slow", "slow"):
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", marked]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        counts.append(int(re.findall(r"^(\d+)(?:/\d+)? tests? collected", said, re.M)[-1]))
    return counts[0], counts[1]


def table(timings: list[Timing], tests: tuple[int, int]) -> str:
    """The block of CONTRIBUTING.md; `tests`: what `selected` counts."""
    rows = ["| Command | Caches | Waited, minutes | Packages beside it | Tests |", "|---|---|---|---|---|"]
    for one in timings:
        what = f"{one.command}, to its first text" if one.first_text else one.command
        ran = ", ".join(f"{count:,} {state}" for state, count in one.tests.items())
        rows.append(f"| `{what}` | {one.caches} | {minutes(one.waited)} | {minutes(one.downloads)} | {ran} |")
    machine = f"{os.cpu_count()} cores, {processor()}"
    measured = f"Measured on {date.today().isoformat()} by `scripts/time_setup.py`: {machine}."
    counts = f"`make test` selects {tests[0]:,} tests, `make test-full` {tests[1]:,} more."
    return "\n".join([*rows, "", f"{measured} {counts}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=ROOT / "out/time_setup.json")
    parser.add_argument("--write", action="store_true", help=f"the table into {PAGE.name}")
    arguments = parser.parse_args()
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    timings = measured(arguments.json.parent)
    arguments.json.write_text(json.dumps([asdict(one) | {"waited": one.waited} for one in timings], indent=1))
    text = table(timings, selected())
    print(text)
    if any(one.status for one in timings):
        return 1
    if arguments.write:
        write_blocks(PAGE, {BLOCK: text})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
