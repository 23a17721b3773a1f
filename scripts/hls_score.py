# SPDX-License-Identifier: Apache-2.0
"""How many designs of a suite openhls takes as they are: `make hls-score SUITE=FOLDER`.

A design is a folder with a hls_config.cfg, as the examples of the vendor have it. No suite is part of this project.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sim"))

from openhls.backend.design import CLOCK_MHZ, write_design
from openhls.config import read_config
from openhls.errors import OpenHlsError
from openhls.frontend.compile import compile_program


@dataclass(frozen=True)
class Verdict:
    """`refused`: why there is no RTL, or empty. `slow`: loops that miss the interval of their pragma."""

    design: str
    refused: str = ""
    slow: int = 0
    warnings: int = 0


def judge(suite: Path, config: Path) -> Verdict:
    """Compiles one design to RTL."""
    name = config.parent.relative_to(suite).as_posix()
    try:
        component = read_config(config)
        program = compile_program(component.sources, component.top, component.includes, component.defines)
        with tempfile.TemporaryDirectory(prefix="openhls-") as folder:
            design = write_design(program, component.top, Path(folder), component.clock_mhz or CLOCK_MHZ)
    except OpenHlsError as error:
        return Verdict(name, str(error))
    except Exception as error:  # an error other than a refusal is a bug of the compiler
        return Verdict(name, f"fault of openhls: {type(error).__name__}")
    return Verdict(name, "", sum(region.missed for region in design.regions), len(program.warnings))


def reason(text: str) -> str:
    """A refusal without places and names, so that equal refusals are counted together."""
    found = re.search(r"error: (.*)", text)
    problem = found.group(1) if found else re.sub(r"^(\S+:\d+( in )?)+: ", "", text.splitlines()[0])
    if "file not found" in problem:
        return problem
    return re.sub(
        r"'[^']*'|\bargument \w+|\b(variable|pointer|array|to|uses|struct) \w+", "...", problem.split(";")[0]
    )[:100]


def main() -> int:
    parser = argparse.ArgumentParser(prog="hls_score", description=__doc__)
    parser.add_argument("suite", type=Path, help="a folder with designs below it")
    parser.add_argument("--jobs", type=int, default=1, help="designs side by side (default %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the verdict on each design, too")
    options = parser.parse_args()
    configs = sorted(options.suite.rglob("hls_config*.cfg"))
    if not configs:
        print(f"hls_score: no hls_config.cfg below {options.suite}", file=sys.stderr)
        return 2
    with ProcessPoolExecutor(options.jobs) as pool:
        verdicts = list(pool.map(judge, [options.suite] * len(configs), configs))
    if options.list:
        for each in verdicts:
            print(f"{each.design}: {each.refused.splitlines()[0] if each.refused else 'accepted'}")
    accepted = [each for each in verdicts if not each.refused]
    print(f"{len(verdicts)} designs, {len(accepted)} accepted as they are, ", end="")
    print(f"{sum(not each.slow for each in accepted)} of them with every loop at the interval its pragma asks for")
    for text, count in Counter(reason(each.refused) for each in verdicts if each.refused).most_common():
        print(f"  {count:3} refused: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
