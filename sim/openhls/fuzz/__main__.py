# SPDX-License-Identifier: Apache-2.0
"""`python -m openhls.fuzz`: random programs until one fails; ends with 1 and a kept case for each failure."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from openhls.errors import OpenHlsError
from openhls.fuzz.run import Summary, fuzz, keep


def main() -> int:
    parser = argparse.ArgumentParser(prog="openhls.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=200, help="how many (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first program (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="batches side by side (default %(default)s)")
    parser.add_argument("--keep", type=Path, default=Path("out/fuzz"), help="where failing programs are kept")
    options = parser.parse_args()
    summary = Summary()
    try:
        for summary in fuzz(options.seed, options.programs, options.jobs):
            print(f"\r{summary.programs} of {options.programs}", end="", file=sys.stderr, flush=True)
        print("\r", end="", file=sys.stderr)
        for verdict in summary.refused:
            print(f"{verdict.name} refused: {verdict.refused}")
        for verdict in summary.failed:
            print(f"{verdict.name} failed: {verdict.problem}\n  making it small ...", flush=True)
            print(f"  kept as {keep(verdict, options.keep)}")
    except OpenHlsError as error:
        print(f"openhls.fuzz: {error}", file=sys.stderr)
        return 2
    print(f"programs {options.seed} to {options.seed + options.programs - 1}: {summary.text()}")
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
