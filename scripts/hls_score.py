# SPDX-License-Identifier: Apache-2.0
"""How many designs of a suite openhls takes as they are: `scripts/hls_score.py FOLDER --verify`.

A design is a folder with a hls_config.cfg, as the examples of the vendor have it. No suite is part of this project.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sim"))

from bench import results
from bench.setup import Setup
from bench.table import Block, Table
from openhls.config import Component, read_config
from openhls.cosim.testbench import replay_testbench
from openhls.emit.design import Design
from openhls.errors import OpenHlsError
from openhls.ir import Program
from openhls.pipeline import compile_program, write_design
from openhls.schedule.target import target_of


@dataclass(frozen=True)
class Verdict:
    """`refused`: why there is no RTL, or empty. `slow`: loops that miss the interval of their pragma. `differs`: why
    the RTL is not verified with the design's own testbench, or empty."""

    design: str
    refused: str = ""
    slow: int = 0
    warnings: int = 0
    differs: str = "not tried"


def judge(suite: Path, verify: bool, config: Path) -> Verdict:
    """Compiles one design to RTL. `verify`: repeats the calls of its testbench on it."""
    name = config.parent.relative_to(suite).as_posix()
    differs = "not tried"
    try:
        component = read_config(config)
        program = compile_program(
            component.sources,
            component.top,
            component.includes,
            component.defines,
            flow=component.flow,
            directives=component.directives,
        )
        with tempfile.TemporaryDirectory(prefix="openhls-") as folder:
            design = write_design(program, component.top, Path(folder), target_of(component.clock_mhz))
            if verify:
                differs = verdict_of_testbench(design, program, component)
    except OpenHlsError as error:
        return Verdict(name, str(error))
    except Exception as error:  # an error other than a refusal is a bug of the compiler
        return Verdict(name, f"fault of openhls: {type(error).__name__}")
    return Verdict(name, "", sum(region.missed for region in design.regions), len(program.warnings), differs)


def verdict_of_testbench(design: Design, program: Program, component: Component) -> str:
    """Why the testbench does not verify the RTL; empty if it does: same results, and main returns 0."""
    if not component.testbenches:
        return "no testbench"
    try:
        run = replay_testbench(
            design,
            component.sources,
            program.function,
            component.testbenches,
            includes=component.includes,
            defines=component.defines,
            output=subprocess.DEVNULL,
        )
    except OpenHlsError as error:
        return " ".join(str(error).split())[:200]
    return run.found.problem or (f"main returns {run.status}" if run.status else "")


def reason(text: str) -> str:
    """A refusal without places and names, so that equal refusals are counted together."""
    found = re.search(r"error: (.*)", text)
    problem = found.group(1) if found else re.sub(r"^(\S+:\d+( in )?)+: ", "", text.splitlines()[0])
    if "file not found" in problem:
        return problem.split(";")[0]
    return re.sub(
        r"'[^']*'|\bargument \w+|\b(variable|pointer|array|to|uses|struct) \w+", "...", problem.split(";")[0]
    )[:100]


def main() -> int:
    parser = argparse.ArgumentParser(prog="hls_score", description=__doc__)
    parser.add_argument("suite", type=Path, help="a folder with designs below it")
    parser.add_argument("--jobs", type=int, default=1, help="designs side by side (default %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the verdict on each design, too")
    parser.add_argument("--verify", action="store_true", help="run each design's testbench, and its calls on the RTL")
    parser.add_argument("--record", action="store_true", help="with --verify, for docs/design/compiler.md")
    options = parser.parse_args()
    options.verify |= options.record  # the table has a row for it
    configs = sorted(options.suite.rglob("hls_config*.cfg"))
    if not configs:
        print(f"hls_score: no hls_config.cfg below {options.suite}", file=sys.stderr)
        return 2
    verdicts = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for each in pool.map(partial(judge, options.suite, options.verify), configs):
            verdicts.append(each)
            if options.list:
                verified = f", {each.differs or 'verified'}" if options.verify else ""
                outcome = each.refused.splitlines()[0] if each.refused else f"accepted{verified}"
                print(f"{each.design}: {outcome}", flush=True)
    accepted = [each for each in verdicts if not each.refused]
    print(f"{len(verdicts)} designs, {len(accepted)} accepted as they are, ", end="")
    print(f"{sum(not each.slow for each in accepted)} of them with every loop at the interval its pragma asks for")
    if options.verify:
        print(f"{sum(not each.differs for each in accepted)} of them verified with their own testbenches")
    for text, count in Counter(reason(each.refused) for each in verdicts if each.refused).most_common():
        print(f"  {count:3} refused: {text}")
    if options.record:
        results.save("hardware", [Block("designs", tables(verdicts))], Setup(quick=False, threads=options.jobs))
    return 0


def tables(verdicts: list[Verdict]) -> list[Table]:
    """The score and the reasons that are left."""
    accepted = [each for each in verdicts if not each.refused]
    rows = [
        ("accepted as they are", len(accepted)),
        ("verified with their own testbenches", sum(not each.differs for each in accepted)),
        ("accepted, with every loop at the interval its pragma asks for", sum(not each.slow for each in accepted)),
    ]
    reasons = Counter(reason(each.refused) for each in verdicts if each.refused)
    most = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    return [
        Table([f"Of {len(verdicts)} designs", ""], [[text, str(count)] for text, count in rows], align="ll"),
        Table(["Refused because of", "Designs"], [[text, str(count)] for text, count in most], align="ll"),
    ]


if __name__ == "__main__":
    sys.exit(main())
